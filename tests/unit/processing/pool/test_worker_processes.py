"""Worker processes as main sees them."""

from __future__ import annotations

import selectors
import time
from pathlib import Path
from typing import Any

import pytest

from processing.ipc.child import Child
from processing.logs import get_logger
from processing.pool import worker_processes
from processing.pool.worker_processes import WorkerProcesses

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
    monkeypatch.setattr(worker_processes, "Child", lambda _module, *a, **k: Child("liar", *a, **k))
    ended: list[Any] = []
    with selectors.DefaultSelector() as selector:
        processes = WorkerProcesses(
            {}, selector, on_frame=lambda *_: None, on_end=lambda *end: ended.append(end),
            log=get_logger("test"),
        )  # fmt: skip
        processes.spawn(0)
        end = time.monotonic() + 60
        while not ended and time.monotonic() < end:
            for key, mask in selector.select(0.1):
                key.data(mask)
        processes.close(5)
    assert ended == [(0, "signal SIGKILL", None)]
