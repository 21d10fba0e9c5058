"""A stop where requests wait for a dead worker's database session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer.service.service import EXIT_KILLED
from consumer.service.signal_pipe import Signals
from processing.pool.backlog import Backlog
from tests.support.scripted_service import ScriptedService, term


@pytest.fixture
def bench() -> Iterator[ScriptedService]:
    signals = Signals()
    yield ScriptedService(signals)
    signals.restore()


def test_no_stop_waits_for_a_dead_workers_session(bench: ScriptedService) -> None:
    """It may stay for hours, and the next owner waits for it, too."""
    bench.pool.per_step, bench.pool.parks = 0, False
    bench.pool.waits = {("t", 0): Backlog(1, 0.0, "a", 1)}
    bench.script = {5: lambda: bench.arrive(0), 20: term}
    assert bench.run(grace=20, read_again=False) == EXIT_KILLED
    assert "kill" not in bench.pool.calls
