"""``oncepool run --reload``, with a small script in the service's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.service.reload import service_command
from tests.support.service import runs
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[4]

RELOADER = """
import sys
from pathlib import Path
from consumer.service import reload
reload.service_command = lambda arguments: [sys.executable, "service.py"]
sys.exit(reload.run_reloading(Path.cwd()))
"""

SERVICE = """
import os, signal, sys, time
def note(what):
    with open("log", "a") as log:
        log.write(f"{what} {os.getpid()}\\n")
def drained(*_):
    note("drained")
    sys.exit(CODE)
signal.signal(signal.SIGTERM, drained)
signal.signal(signal.SIGINT, lambda *_: note("interrupted"))
note("started")
while True:
    time.sleep(60)
"""

BROKEN = """
with open("log", "a") as log:
    log.write("broken 0\\n")
raise ImportError("no such module")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "service.py").write_text(SERVICE.replace("CODE", "3"))
    (tmp_path / "log").touch()
    return tmp_path


@pytest.fixture
def reloader(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ONCEPOOL_RELOAD": "1"}
    process = subprocess.Popen([sys.executable, "-c", RELOADER], cwd=folder, env=environ)
    yield process
    process.kill()
    process.wait()


def events(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "log").read_text().splitlines()]


def watched(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process watches files: what is changed before that it does not see."""
    try:
        told = [path.read_text() for path in Path(f"/proc/{process.pid}/fdinfo").iterdir()]
    except FileNotFoundError:  # closed meanwhile
        return False
    return any(line.startswith("inotify wd:") for text in told for line in text.splitlines())


def test_a_change_of_code_drains_the_service_and_starts_it_again(
    folder: Path, reloader: subprocess.Popen[bytes]
) -> None:
    eventually(lambda: events(folder) == ["started"] and watched(reloader))

    (folder / "shop.py").write_text("n = 1")
    eventually(lambda: events(folder)[2:] == ["started"])

    assert events(folder) == ["started", "drained", "started"]
    reloader.send_signal(signal.SIGTERM)
    assert reloader.wait(60) == 3, "the exit code is the service's"
    assert events(folder)[-1] == "drained"
    assert "interrupted" not in events(folder)


def test_a_service_that_cannot_start_waits_for_the_next_change(
    folder: Path, reloader: subprocess.Popen[bytes]
) -> None:
    eventually(lambda: events(folder) == ["started"] and watched(reloader))
    (folder / "service.py").write_text(BROKEN)
    eventually(lambda: events(folder) == ["started", "drained", "broken"])
    assert reloader.poll() is None

    (folder / "service.py").write_text(SERVICE.replace("CODE", "0"))
    eventually(lambda: events(folder)[-1] == "started")

    reloader.send_signal(signal.SIGINT)
    assert reloader.wait(60) == 0


SLOW = """
import os, signal, sys, time
def asked(*_):
    with open("log", "a") as log:
        log.write(f"asked {os.getpid()}\\n")
    if open("log").read().count("asked") > 1:
        sys.exit(3)
signal.signal(signal.SIGTERM, asked)
with open("log", "a") as log:
    log.write(f"started {os.getpid()}\\n")
while True:
    time.sleep(60)
"""


def test_a_second_signal_hastens_the_service(folder: Path) -> None:
    (folder / "service.py").write_text(SLOW)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ONCEPOOL_RELOAD": "1"}
    process = subprocess.Popen([sys.executable, "-c", RELOADER], cwd=folder, env=environ)
    try:
        eventually(lambda: events(folder) == ["started"])
        process.send_signal(signal.SIGINT)
        eventually(lambda: events(folder) == ["started", "asked"])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 3, "the exit code is the service's"
        assert events(folder) == ["started", "asked", "asked"]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_service_drains_after_a_change_ends_it_for_good(
    folder: Path, number: signal.Signals
) -> None:
    (folder / "service.py").write_text(SLOW)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ONCEPOOL_RELOAD": "1"}
    process = subprocess.Popen([sys.executable, "-c", RELOADER], cwd=folder, env=environ)
    try:
        eventually(lambda: events(folder) == ["started"] and watched(process))
        (folder / "shop.py").write_text("n = 1")
        eventually(lambda: events(folder) == ["started", "asked"])
        process.send_signal(number)
        assert process.wait(60) == 3, "the exit code is the service's"
        assert events(folder) == ["started", "asked", "asked"]
    finally:
        process.kill()
        process.wait()


HEARING = """
import signal
install = signal.signal
def hearing(number, handler):
    def handle(*details):
        handler(*details)
        with open("log", "a") as log:
            log.write("heard\\n")
    install(number, handle)
signal.signal = hearing
"""
UNTIL_TOLD = SLOW.replace(
    "while True:\n    time.sleep(60)",
    """
while not os.path.exists("end"):
    time.sleep(0.01)
sys.exit(4)
""",
)


@pytest.mark.usefixtures("terminal")
def test_a_closed_terminal_hastens_no_service_that_drains_after_a_change(folder: Path) -> None:
    """And it is not started again."""
    (folder / "service.py").write_text(UNTIL_TOLD)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ONCEPOOL_RELOAD": "1"}
    process = subprocess.Popen([sys.executable, "-c", HEARING + RELOADER], cwd=folder, env=environ)
    try:
        eventually(lambda: events(folder) == ["started"] and watched(process))
        (folder / "shop.py").write_text("n = 1")
        eventually(lambda: events(folder) == ["started", "asked"])
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "heard" in events(folder))
        (folder / "end").touch()
        assert process.wait(60) == 4
        assert events(folder) == ["started", "asked", "heard"]
    finally:
        process.kill()
        process.wait()


def test_the_service_gets_the_same_arguments_without_reload() -> None:
    command = service_command(["run", "shop:app", "--reload", "--workers", "2"])

    assert command[1:3] == ["-m", "consumer.service.reloaded"]
    assert command[4:] == ["run", "shop:app", "--workers", "2"]


PARENT = """
import os
from consumer.service.reload import _start, service_command
_start(service_command(["run"]), dict(os.environ)).wait()
"""
IMPORTED = """
import os, signal, threading
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (Path("log").write_text("asked to end"), os._exit(0)))
Path("pid").write_text(str(os.getpid()) + "!")
threading.Event().wait()
"""


def test_a_service_whose_parent_is_killed_is_asked_to_end(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(IMPORTED)
    (tmp_path / "pid").touch()
    (tmp_path / "log").touch()
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, env=environ)
    eventually(lambda: (tmp_path / "pid").read_text().endswith("!"))
    child = int((tmp_path / "pid").read_text()[:-1])
    parent.kill()
    parent.wait(60)
    try:
        eventually(lambda: not runs(child), 30)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise
    assert (tmp_path / "log").read_text() == "asked to end"
