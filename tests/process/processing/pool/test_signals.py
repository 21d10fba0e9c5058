"""Signals to workers: what is looked at for the log."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from processing.ipc.progress import ProgressSlot, Running
from processing.pool.actions import Signal
from tests.support.workers import Workers

COUNT = 3


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[ProgressSlot]:
    """Slots that were read, once for each time."""
    found: list[ProgressSlot] = []
    read = ProgressSlot.read

    def counted(slot: ProgressSlot) -> Running | None:
        found.append(slot)
        return read(slot)

    monkeypatch.setattr(ProgressSlot, "read", counted)
    return found


@pytest.mark.long
def test_a_signal_to_each_worker_looks_at_each_once_and_one_that_comes_again_at_none(
    make: Callable[..., Workers], reads: list[ProgressSlot], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oncepool")
    workers = make(workers=COUNT)
    workers.start()
    supervisor = workers.supervisor
    workers.submit(*(f"id-{n}" for n in range(COUNT)), do="hang")
    workers.until(lambda: len(supervisor.running_requests()) == COUNT)
    reads.clear()
    supervisor.terminate()
    assert len(reads) == 2 * COUNT, "once for all, and once for the line of each"
    said = caplog.text
    assert all(f"id-{n}" in said for n in range(COUNT))
    reads.clear()
    numbers = supervisor._processes.numbers
    supervisor._act([Signal(n, signal.SIGTERM, "shutdown", again=True) for n in numbers])
    assert reads == []
    supervisor.kill()
