"""A command that is run on a copy of the tree is interrupted, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.checkers import end_marked
from tests.model.planting import interrupt

WAITS = "import time\ntry: print('up', flush=True); time.sleep(60)\n"


@pytest.fixture(autouse=True)
def _can_be_interrupted() -> Iterator[None]:
    """As in a terminal: who is started by one that ignores it ignores it, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def started(program: str, **more: str) -> subprocess.Popen[str]:
    """A process that is up."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **more}, stdout=pipe, stderr=pipe,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_command_that_is_interrupted_clears_up(tmp_path: Path) -> None:
    file = tmp_path / "cleared"
    with started(f"{WAITS}finally: open({str(file)!r}, 'w').close()\n") as process:
        interrupt(process)
    assert file.exists()
    assert process.returncode != 0


def test_processes_of_a_run_are_ended_and_no_others(tmp_path: Path) -> None:
    mark = f"CHECKERS_TREE={tmp_path}"
    with (
        started(f"{WAITS}finally: pass\n", CHECKERS_TREE=str(tmp_path)) as ours,
        started(f"{WAITS}finally: pass\n", CHECKERS_TREE=f"{tmp_path}0") as other,
    ):
        assert end_marked(mark) == 1
        assert ours.wait(30) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
    assert end_marked(mark) == 0
