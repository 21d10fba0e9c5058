"""What an instance shows: of its main process, its workers, its services and the journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from feedback.metrics.durations import RUN, Durations
from processing.ipc.frames import Counts, Report
from processing.maintenance import instance_metrics
from processing.maintenance.health import Health
from processing.maintenance.instance_metrics import ASKED_WITHIN, LOOK_EVERY, InstanceMetrics
from processing.maintenance.main_metrics import CLOSED_BY, MOST_CAUSES, MainMetrics
from processing.pool.report_totals import ReportTotals
from tests.support.clock import Clock
from tests.support.metrics import FACTS, JOURNAL, busy_instance, measured, values


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> InstanceMetrics:
    return InstanceMetrics("i-1", Health(10.0, clock), lambda: 0, clock)


def of_main(**facts: Any) -> Any:
    return MainMetrics().families({**FACTS, **facts})


def test_nothing_is_said_of_a_main_process_that_was_not_heard() -> None:
    assert MainMetrics().families({}) == []


def test_a_heartbeat_is_shown() -> None:
    shown = of_main()
    assert values(shown, "oncepool_messages_dropped_total") == {("unowned",): 4, ("stopping",): 6}
    assert values(shown, "oncepool_commit_errors_total") == {("_TRANSPORT",): 2}
    assert values(shown, "oncepool_messages_read_again_total") == {(): 3}
    assert values(shown, "oncepool_consumer_lag") == {("orders",): 70_000}
    assert values(shown, "oncepool_local_requests") == {
        ("held",): 4, ("queued",): 5, ("running",): 6,
    }  # fmt: skip
    assert values(shown, "oncepool_workers")["busy",] == 1


def test_brokers_count_as_up_once_one_was_heard_and_until_all_are_down() -> None:
    for told, up in (({"brokers_away_for": 3.0}, 0.0), ({"brokers_away_for": None}, 1.0)):
        assert values(of_main(**told), "oncepool_brokers_up") == {(): up}
    unknown = {"joined": False, "missing_topics": None, "brokers_away_for": None}
    assert values(of_main(**unknown), "oncepool_brokers_up") == {}


def test_a_lag_that_is_not_known_is_not_shown() -> None:
    assert values(of_main(lag={}), "oncepool_consumer_lag") == {}


def test_partitions_that_were_lost_are_not_told_as_revoked_too() -> None:
    assert values(of_main(), "oncepool_rebalances_total") == {
        ("assigned",): 5, ("revoked",): 3, ("lost",): 1,
    }  # fmt: skip


def test_types_are_known_by_what_their_workers_report_first(metrics: InstanceMetrics) -> None:
    """The main process may say its next heartbeat later."""
    totals = ReportTotals()
    durations = Durations()
    durations.add("pay", RUN, [0.1])
    counts = {("pay", "done", "ok"): 1}
    totals.report(Report(1, [], [], {}, counts, database_up=True, durations=durations.counts), 1)
    for frame in totals.take(["pay"]):
        if isinstance(frame, Counts):
            metrics.count(frame.counts)
        else:
            metrics.measured(frame)
    shown = metrics.families()
    assert values(shown, "oncepool_requests_total") == {
        ("pay", "done", "ok"): 1, ("other", "waiting", "unknown_type"): 0,
    }  # fmt: skip
    assert values(shown, "oncepool_run_seconds").keys() == {("pay",)}


@pytest.mark.parametrize("paused", [[], ["full"], ["database", "workers"], list(CLOSED_BY)])
def test_each_reason_for_which_intake_is_closed_is_there_all_the_time(paused: list[str]) -> None:
    assert values(of_main(paused=paused), "oncepool_intake_closed") == {
        (reason,): float(reason in paused) for reason in CLOSED_BY
    }


def test_deaths_begin_at_0_and_their_causes_have_a_bound() -> None:
    shown = MainMetrics().families({**FACTS, "deaths_by_cause": {"SIGSEGV": 1, "SIGBUS": 2}})
    deaths = values(shown, "oncepool_worker_deaths_total")
    assert (deaths["SIGSEGV",], deaths["SIGBUS",], deaths["timeout",]) == (1, 2, 0)
    many = {f"error:{n}": 1 for n in range(MOST_CAUSES + 7)}
    shown = MainMetrics().families({**FACTS, "counts": many})
    codes = values(shown, "oncepool_commit_errors_total")
    assert (len(codes), codes["other",]) == (MOST_CAUSES + 1, 7)


def test_the_services_and_what_was_dropped_are_shown() -> None:
    shown = busy_instance().families()
    assert values(shown, "oncepool_database_up") == {(): 1.0}
    assert values(shown, "oncepool_redis_up") == {(): 0.0}
    assert values(shown, "oncepool_ready") == {(): 1.0}  # requests run without it
    assert values(shown, "oncepool_status_writes_dropped_total") == {
        ("workers",): 6, ("maintenance",): 2,
    }  # fmt: skip


def test_workers_drops_add_up(metrics: InstanceMetrics) -> None:
    metrics.measured(measured())
    metrics.measured(measured())
    shown = values(metrics.families(), "oncepool_status_writes_dropped_total")
    assert shown["workers",] == 12


def test_the_journal_is_looked_at_while_somebody_asks(
    metrics: InstanceMetrics, clock: Clock
) -> None:
    assert not metrics.wants_journal
    assert not any("journal" in one.metric.name for one in metrics.families())
    assert metrics.wants_journal
    metrics.journal(JOURNAL)
    assert not metrics.wants_journal
    clock.now += 7.0
    shown = metrics.families()
    assert values(shown, "oncepool_journal_rows")["waiting",] == 3
    # Of what waits on purpose an age says nothing.
    assert values(shown, "oncepool_journal_oldest_seconds").keys() == {
        ("due",), ("in_doubt",), ("dead",), ("dead_letter",),
    }  # fmt: skip
    assert values(shown, "oncepool_journal_read_age_seconds") == {(): 7.0}
    clock.now += LOOK_EVERY
    assert metrics.wants_journal
    metrics.journal(None)  # it took too long: what was seen stays, and grows older
    assert not metrics.wants_journal
    shown = metrics.families()
    assert values(shown, "oncepool_journal_read_age_seconds") == {(): LOOK_EVERY + 7.0}
    clock.now += ASKED_WITHIN + 1.0
    assert not metrics.wants_journal


def test_a_journal_that_was_never_read_in_time_has_no_age_that_hides_others(
    metrics: InstanceMetrics, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(instance_metrics, "log", SimpleNamespace(warning=told.append))
    for _ in range(3):
        metrics.journal(None)
        clock.now += LOOK_EVERY
        shown = metrics.families()
        assert not any("journal" in one.metric.name for one in shown)
    assert len(told) == 1  # until it is read again
    metrics.journal(JOURNAL)
    metrics.journal(None)
    assert len(told) == 2


def test_a_silent_main_process_shows_by_the_age_of_what_it_said(clock: Clock) -> None:
    health = Health(10.0, clock)
    health.heartbeat(FACTS)
    clock.now += 40.0
    shown = InstanceMetrics("i-1", health, lambda: 0, clock).families()
    assert values(shown, "oncepool_heartbeat_age_seconds") == {(): 40.0}
    assert values(shown, "oncepool_group_joined") == {(): 1.0}
