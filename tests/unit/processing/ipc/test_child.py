"""How a child process has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processing.ipc.child import Child


@pytest.mark.parametrize(
    "sent,cause",
    [
        (signal.SIGKILL, "signal SIGKILL"),
        (signal.SIGRTMIN, "signal SIGRTMIN"),
        (signal.SIGRTMIN + 3, f"signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_the_cause_of_its_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int, cause: str
) -> None:
    (tmp_path / "sleeper.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.chdir(tmp_path)
    child = Child("sleeper", {})
    try:
        child.signal(sent)
        assert child.wait(60)
        assert child.cause == cause
    finally:
        child.close()


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )


def test_who_fell_to_the_first_process_is_reaped_and_its_own_children_are_not() -> None:
    code = (
        "import ctypes, os, signal, subprocess, time\n"
        "from processing.ipc.child import Child, reap_orphans\n"
        "reap_orphans()\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # as PID 1: orphans become its children
        "child = Child('timeit', {})\n"
        "child.signal(signal.SIGKILL)\n"
        "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)\n"
        "found = subprocess.check_output(['sh', '-c', 'true & echo $!'])\n"
        "reap_orphans()\n"
        "print(child.wait(60), child.cause)\n"
        "end = time.monotonic() + 60\n"
        "while os.path.exists(f'/proc/{int(found)}') and time.monotonic() < end:\n"
        "    reap_orphans()\n"
        "print(os.path.exists(f'/proc/{int(found)}'))\n"
    )
    done = run_code(code)
    assert done.stdout == "True signal SIGKILL\nFalse\n", done.stderr


def test_one_that_nobody_keeps_has_ended() -> None:
    """Where SIGCHLD is ignored, as whoever starts the service may have it, the kernel reaps."""
    code = (
        "import os, signal\n"
        "from processing.ipc.child import Child\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "child = Child('timeit', {})\n"
        "child.signal(signal.SIGKILL)\n"
        "while os.path.exists(f'/proc/{child.pid}'):\n"
        "    pass\n"
        "print(child.ended(), child.wait(60))\n"
    )
    done = run_code(code)
    assert done.stdout == "True True\n", done.stderr
