"""Children that the system does not start, as it is out of descriptors."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.descriptors import few_descriptors, no_more_descriptors
from tests.support.workers import Workers

Make = Callable[..., Workers]

FOR_ONE = 10
"""Descriptors that one start takes for a moment, and three more, as threads of other tests' clients
open some meanwhile: enough for one worker or two."""
TOO_MANY = 3
"""Of six at least so many are refused, one after the other."""


def test_workers_refused_at_the_start_are_tried_again_while_another_one_starts(make: Make) -> None:
    workers = make(workers=6)
    supervisor = workers.supervisor
    supervisor.start_maintenance()
    workers.until(lambda: supervisor.maintenance.ready)
    with few_descriptors(FOR_ONE):
        supervisor.start_workers()
        workers.until(lambda: workers.pids)
        assert supervisor.stats().deaths_by_cause["start"] >= TOO_MANY
        workers.until(lambda: supervisor.fatal or supervisor.stats().workers)
        assert supervisor.fatal is None
        workers.submit("id")
        workers.finish()
    workers.until(lambda: supervisor.fatal or workers.ready)
    assert supervisor.fatal is None
    assert workers.states() == {"id": ("done", "ok")}


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
