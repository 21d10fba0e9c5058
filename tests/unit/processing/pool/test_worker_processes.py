"""Worker processes as main sees them."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from processing.ipc import child
from processing.ipc.child import Child
from processing.ipc.frames import Stop
from processing.pool import worker_processes
from processing.pool.worker_processes import WorkerProcesses


class Lines:
    """A log that keeps its levels and lines."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda text, **_: self.kept.append((level, text))


class Watched:
    """One worker process that runs a module of the test's, and what is told of its end."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.ends: list[Any] = []
        self.log = Lines()
        self._selector = selector
        self.processes = WorkerProcesses(
            {}, selector, on_frame=lambda *_: None, on_end=lambda *end: self.ends.append(end),
            log=self.log,  # type: ignore[arg-type]
        )  # fmt: skip

    def wait(self, each: Callable[[], object] = lambda: None) -> None:
        """Until it has ended; `each` is called after each look."""
        end = time.monotonic() + 60
        while not self.ends and time.monotonic() < end:
            for key, mask in self._selector.select(0.1):
                key.data(mask)
            each()


@contextmanager
def watched(module: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """It is started, and put away at the end."""
    monkeypatch.setattr(worker_processes, "Child", lambda _module, *a, **k: Child(module, *a, **k))
    with selectors.DefaultSelector() as selector:
        worker = Watched(selector)
        worker.processes.spawn(0)
        yield worker
        worker.processes.close(5)


LIAR = """
import signal, socket, sys
said = {said}
channel = socket.socket(fileno=int(sys.argv[2]))
channel.recv(1 << 20)
channel.sendall(said)
signal.pause()
"""


@pytest.mark.parametrize("said", [b"\x05\0\0\0hello", b"\x02\0\0\0)\x01", b"\0\0\0\0"])
def test_a_worker_that_says_what_makes_no_sense_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    (tmp_path / "liar.py").write_text(LIAR.format(said=said))
    monkeypatch.chdir(tmp_path)
    with watched("liar", monkeypatch) as worker:
        worker.wait()
    assert worker.ends == [(0, "signal SIGKILL", None)]


BEGETTER = """
import os, signal
ready, tell = os.pipe()
if os.fork():
    os.read(ready, 1)
    os._exit(3)
os.open("alive", os.O_WRONLY)
os.write(tell, b"x")
signal.alarm(200)
signal.pause()
"""


@pytest.mark.parametrize("told", [True, False], ids=["told by a descriptor", "looked for"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_worker_has_started_ends_with_it_though_a_signal_comes_after_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int, told: bool
) -> None:
    (tmp_path / "begetter.py").write_text(BEGETTER)
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.chdir(tmp_path)
    if not told:
        monkeypatch.setattr(child, "_sentinel", lambda _pid: None)
    with watched("begetter", monkeypatch) as worker:
        os.waitid(os.P_PID, worker.processes.pid(0), os.WEXITED | os.WNOWAIT)
        assert not select.select([alive], [], [], 0)[0], "its child has ended already"
        worker.processes.signal(0, sent)
        worker.wait(each=worker.processes.reap)
    assert worker.ends == [(0, "exit code 3", None)]
    assert select.select([alive], [], [], 20)[0], "its child lives on"
    assert os.read(alive, 1) == b""
    os.close(alive)


ENDS = """
import os, signal, socket, sys
from processing.ipc.channel import BlockingChannel
from processing.ipc.frames import CannotServe
signal.alarm(200)
channel = BlockingChannel(socket.socket(fileno=int(sys.argv[2])))
channel.receive()
{does}
"""
TOLD = "channel.receive()\n"


def killed_by_another(processes: WorkerProcesses) -> None:
    os.kill(processes.pid(0), signal.SIGKILL)


def told_and_killed_by_another(processes: WorkerProcesses) -> None:
    processes.send(0, Stop())
    killed_by_another(processes)


@pytest.mark.parametrize(
    "does, asked, level",
    [
        ("signal.pause()", killed_by_another, "warning"),
        ("signal.pause()", told_and_killed_by_another, "warning"),
        ("os._exit(3)", None, "warning"),
        ("os._exit(0)", None, "warning"),
        (TOLD + "os._exit(3)", lambda processes: processes.send(0, Stop()), "warning"),
        (TOLD + "os._exit(0)", lambda processes: processes.send(0, Stop()), "info"),
        ("signal.pause()", lambda processes: processes.signal(0, signal.SIGTERM), "info"),
        ("signal.pause()", lambda processes: processes.signal(0, signal.SIGKILL), "info"),
        ("channel.send(CannotServe('no')); os._exit(1)", None, "info"),
    ],
)
def test_an_end_that_nobody_here_asked_for_is_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    does: str,
    asked: Callable[[WorkerProcesses], None] | None,
    level: str,
) -> None:
    (tmp_path / "ends.py").write_text(ENDS.format(does=does))
    monkeypatch.chdir(tmp_path)
    with watched("ends", monkeypatch) as worker:
        if asked is not None:
            asked(worker.processes)
        worker.wait()
    assert worker.log.kept == [(level, "worker ended")]
