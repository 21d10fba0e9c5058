"""What is shown of requests, and what of their names comes from outside."""

from __future__ import annotations

import pytest

from feedback.metrics.durations import BOUNDS, RUN, SUM, Durations
from feedback.metrics.families import HistogramValue
from processing.maintenance import request_metrics
from processing.maintenance.request_metrics import MOST_CODES, MOST_TYPES, OUR_CODES, RequestMetrics
from tests.support.metrics import COUNTS, measured, values


@pytest.fixture
def metrics() -> RequestMetrics:
    made = RequestMetrics()
    made.know(["pay"])
    return made


def test_each_count_is_shown_under_one_name(metrics: RequestMetrics) -> None:
    metrics.count(COUNTS)
    shown = metrics.families()
    assert values(shown, "oncepool_requests_total") == {
        ("pay", "done", "ok"): 10, ("pay", "failed", "handler_error"): 2,
        ("pay", "dead", "retry"): 1, ("pay", "in_doubt", "timeout"): 1,
        ("pay", "waiting", "unknown_type"): 1, ("other", "waiting", "unknown_type"): 0,
    }  # fmt: skip
    assert values(shown, "oncepool_duplicates_answered_total") == {("pay", "done"): 4}
    assert values(shown, "oncepool_read_again_answered_total") == {("pay",): 3}
    assert values(shown, "oncepool_dead_letters_total") == {
        ("pay", "conflict"): 1, ("pay", "malformed"): 0,
        ("other", "conflict"): 0, ("other", "malformed"): 2,
    }  # fmt: skip
    assert values(shown, "oncepool_skipped_total") == {(): 5}
    assert values(shown, "oncepool_lost_at_commit_total") == {("pay",): 1, ("other",): 0}


def test_what_alarms_is_there_before_it_happens(metrics: RequestMetrics) -> None:
    """`increase` sees nothing in what appears at 1."""
    shown = metrics.families()
    assert values(shown, "oncepool_lost_at_commit_total") == {("pay",): 0, ("other",): 0}
    assert len(values(shown, "oncepool_dead_letters_total")) == 4
    # Of a type that the app does not have.
    unknown = {("other", "waiting", "unknown_type"): 0}
    assert values(shown, "oncepool_requests_total") == unknown


def test_made_up_types_are_other_and_do_not_push_out_those_of_the_app(
    metrics: RequestMetrics,
) -> None:
    metrics.count({(f"made up {n}", "waiting", "unknown_type"): 1 for n in range(1000)})
    metrics.know(["late"])
    metrics.count({("late", "done", "ok"): 2, ("", "done", "ok"): 1})
    assert values(metrics.families(), "oncepool_requests_total") == {
        ("other", "waiting", "unknown_type"): 1000, ("late", "done", "ok"): 2,
        ("other", "done", "ok"): 1,
    }  # fmt: skip


def test_an_app_of_very_many_types_has_a_bound_too() -> None:
    metrics = RequestMetrics()
    for _ in range(2):  # each heartbeat says the same
        metrics.know(f"t{n}" for n in range(MOST_TYPES + 10))
    metrics.count({(f"t{n}", "done", "ok"): 1 for n in range(MOST_TYPES + 10)})
    shown = values(metrics.families(), "oncepool_requests_total")
    assert len({kind for kind, _, _ in shown}) == MOST_TYPES + 1
    assert shown["other", "done", "ok"] == 10


def test_codes_of_handlers_have_a_bound_and_ours_are_always_named(metrics: RequestMetrics) -> None:
    metrics.count({("pay", "rejected", f"order_{n}"): 1 for n in range(MOST_CODES + 20)})
    metrics.count({("pay", "failed", code): 1 for code in ("timeout", "worker_died", "shutdown")})
    shown = values(metrics.families(), "oncepool_requests_total")
    assert shown["pay", "rejected", "other"] == 20
    assert {code for _, state, code in shown if state == "failed"} == {
        "timeout", "worker_died", "shutdown",
    }  # fmt: skip
    assert {"ok", "retry", "conflict", "malformed", "expired"} <= OUR_CODES


def test_types_states_and_codes_together_have_a_bound(
    metrics: RequestMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_metrics, "MOST_SERIES", 3)
    metrics.count({("pay", "done", f"c{n}"): 1 for n in range(5)})
    metrics.count({("pay", "done", "c0"): 1})
    assert values(metrics.families(), "oncepool_requests_total") == {
        ("pay", "done", "c0"): 2, ("pay", "done", "c1"): 1, ("other", "done", "other"): 3,
        ("other", "waiting", "unknown_type"): 0,
    }  # fmt: skip


def test_what_was_measured_adds_up_over_reports(metrics: RequestMetrics) -> None:
    for _ in range(2):
        frame = measured()
        metrics.measured(frame.durations, frame.chunks)
    shown = metrics.families()
    found = values(shown, "oncepool_wait_seconds")
    value = found["pay",]
    assert isinstance(value, HistogramValue)
    assert (sum(value.buckets), value.buckets[len(BOUNDS)]) == (6, 2)
    assert value.sum == pytest.approx(2 * 9000.302)
    assert found.keys() == {("pay",), ("other",)}
    chunks = values(shown, "oncepool_chunk_requests")[()]
    assert isinstance(chunks, HistogramValue)
    assert (sum(chunks.buckets), chunks.sum) == (4, 8.0)


def test_what_was_shown_does_not_change_afterwards(metrics: RequestMetrics) -> None:
    durations = Durations()
    durations.add("pay", RUN, [1.0])
    metrics.measured(durations.counts, {1: 1})
    before = values(metrics.families(), "oncepool_run_seconds")["pay",]
    metrics.measured({("pay", RUN, SUM): 1.0, ("pay", RUN, 0): 1}, {})
    after = values(metrics.families(), "oncepool_run_seconds")["pay",]
    assert isinstance(before, HistogramValue)
    assert isinstance(after, HistogramValue)
    assert (before.buckets[0], after.buckets[0]) == (0, 1)
