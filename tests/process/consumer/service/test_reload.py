"""``oncepool run --reload``, with a small script in the service's place."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.service.reload import service_command
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


def test_a_change_of_code_drains_the_service_and_starts_it_again(
    folder: Path, reloader: subprocess.Popen[bytes]
) -> None:
    eventually(lambda: events(folder) == ["started"])

    # The watch may begin a moment after the service, so the change may have to be made again; each
    # that comes later is one more restart.
    for _ in range(10):
        (folder / "shop.py").write_text("n = 1")
        with contextlib.suppress(AssertionError):
            eventually(lambda: "drained" in events(folder), 2.0)
            break
    eventually(lambda: events(folder)[2:] == ["started"], 20.0)

    assert events(folder) == ["started", "drained", "started"]
    reloader.send_signal(signal.SIGTERM)
    assert reloader.wait(10) == 3, "the exit code is the service's"
    assert events(folder)[-1] == "drained"
    assert "interrupted" not in events(folder)


def test_a_service_that_cannot_start_waits_for_the_next_change(
    folder: Path, reloader: subprocess.Popen[bytes]
) -> None:
    eventually(lambda: events(folder) == ["started"])
    broken = "this is no Python"
    eventually(
        lambda: (folder / "service.py").write_text(broken) and "drained" in events(folder), 20.0
    )
    assert reloader.poll() is None

    (folder / "service.py").write_text(SERVICE.replace("CODE", "0"))
    eventually(lambda: events(folder)[-1] == "started", 20.0)

    reloader.send_signal(signal.SIGINT)
    assert reloader.wait(10) == 0


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
        assert process.wait(20) == 3, "the exit code is the service's"
        assert events(folder) == ["started", "asked", "asked"]
    finally:
        process.kill()
        process.wait()


def test_the_service_gets_the_same_arguments_without_reload() -> None:
    command = service_command(["run", "shop:app", "--reload", "--workers", "2"])

    assert command[1:] == ["-m", "consumer", "run", "shop:app", "--workers", "2"]
