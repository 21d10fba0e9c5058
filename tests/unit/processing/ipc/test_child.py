"""How a child process has ended."""

from __future__ import annotations

import signal
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
