"""Children that the system does not start, as it is out of descriptors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.descriptors import few_descriptors, no_more_descriptors
from tests.support.workers import Workers

Make = Callable[..., Workers]

WORKERS = 6
FOR_SOME = range(8, 64, 4)
"""Descriptors with which some of six workers start: one takes eight for a moment. There may have to
be more, as clients that other tests have left in this process open some now and then."""


@pytest.mark.long
def test_workers_refused_at_the_start_are_tried_again_while_another_one_starts(make: Make) -> None:
    workers = next(filter(None, (started_with(left, make) for left in FOR_SOME)))
    supervisor = workers.supervisor
    workers.until(lambda: supervisor.fatal or workers.ready)
    assert supervisor.fatal is None
    assert workers.states() == {"id": ("done", "ok")}


def started_with(left: int, make: Make) -> Workers | None:
    """Of six workers some start with so few descriptors, and do what there is; None: none does."""
    workers = make(workers=WORKERS)
    supervisor = workers.supervisor
    supervisor.start_maintenance()
    workers.until(lambda: supervisor.maintenance.ready)
    with few_descriptors(left):
        supervisor.start_workers()
        workers.until(lambda: workers.pids or refused(workers) == WORKERS)
        if not workers.pids:
            return None
        assert refused(workers)
        workers.until(lambda: supervisor.fatal or supervisor.stats().workers)
        assert supervisor.fatal is None
        workers.submit("id")
        workers.finish()
    return workers


def refused(workers: Workers) -> int:
    return workers.supervisor.stats().deaths_by_cause.get("start", 0)


def test_where_no_worker_can_be_started_the_systems_error_says_why(make: Make) -> None:
    workers = make(workers=2)
    workers.supervisor.start_maintenance()
    workers.until(lambda: workers.supervisor.maintenance.ready)
    with no_more_descriptors():
        workers.supervisor.start_workers()
        workers.until(lambda: workers.supervisor.fatal)
    fatal = str(workers.supervisor.fatal)
    assert "Too many open files" in fatal
    assert "import" not in fatal


def test_where_no_maintenance_process_can_be_started_the_systems_error_says_why(
    make: Make,
) -> None:
    workers = make()
    with no_more_descriptors():
        workers.supervisor.start_maintenance()
        workers.until(lambda: workers.supervisor.fatal)
    assert "Too many open files" in str(workers.supervisor.fatal)
