"""What a cause says it takes from the results beside it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.causes import (
    OWN,
    apart,
    beside_before,
    beyond_work,
    by_step,
    half_load,
    idle_over,
    journal_of,
    of_status,
    one_and_two,
    side_of,
    waiting_of,
)
from benchmarks.goals import UNTOLD, verdicts
from benchmarks.page import text_of
from benchmarks.page_contests import ALIKE_SINCE, LEFT_OUT, UNLIKE

NOW, THEN = "2030-01-02T03:04:05Z", "2026-11-28T01:28:25Z"


def run(rate: float, **cpu: float) -> dict[str, Any]:
    return {"rate": rate, "cpu": {name.replace("_", " "): cost for name, cost in cpu.items()}}


OURS = [run(40_000, main=9.0, worker=23.0, PostgreSQL=9.0, Valkey=2.0, broker=3.0)] * 3
THEIRS = [run(60_000, main=17.0, PostgreSQL=6.0, Valkey=3.0, broker=3.0)] * 3
BEFORE = [run(30_000, main=10.0, worker=27.0, PostgreSQL=9.0, Valkey=7.0, broker=2.0)] * 3
LIMIT = [run(70_000, main=12.0, PostgreSQL=8.0, Valkey=2.0, broker=0.1)] * 3
LOOPS = [run(300_000, main=2.0, broker=1.0)] * 3


def peers(date: str = NOW) -> dict[str, Any]:
    machine = {
        "date": date, "commit": "", "cores": 2, "memory_gib": 8.0, "load_before": 0.1,
        "python": "CPython", "services": {}, "packages": {},
    }  # fmt: skip
    sides = {"Oncepool": OURS, "afternoon": THEIRS, "ec01882": BEFORE, "bare limit": LIMIT}
    loops = {"Oncepool": OURS, "bare loops, by batches": LOOPS}
    return {
        "peers-2": {"machine": machine, "unit": "requests", "found": {"no-op": sides}},
        "peers-1": {"machine": machine, "unit": "requests", "found": {"no-op": sides}},
        "handoff-2": {"machine": machine, "unit": "requests", "found": {"no-op": loops}},
    }


def of(side: str) -> Any:
    return side_of("peers-2", "no-op", side)


def test_what_each_process_spends_more_comes_first_with_how_the_sides_differ_there() -> None:
    notes = {OWN: "a worker", "Valkey": "never told, as it is less"}
    assert apart(of("Oncepool"), of("afternoon"), notes=notes)(peers()) == (
        "46.0 us of CPU for each against 29.0: main and workers +15.0 (32.0 against 17.0: a "
        "worker), PostgreSQL +3.0 (9.00 against 6.00), Valkey -1.0 (2.00 against 3.00); cores at "
        "work 1.84 against 1.74"
    )
    assert "the same in all processes" in apart(of("Oncepool"), of("Oncepool"))(peers())


def test_what_the_goal_leaves_is_its_share_of_what_was_spent_before() -> None:
    words = beside_before(of("Oncepool"), of("ec01882"), 0.5)(peers())
    assert "46.0 us of CPU for each against 55.0" in words
    assert "leaves 27.5 us in all, of which PostgreSQL, Valkey and the broker have 14.0" in words


def test_handlers_that_compute_lose_what_is_beside_their_work() -> None:
    results = {"cpu_bound-2": {"found": {"1 ms": {
        "Oncepool": [run(1644, main=32.0, worker=1107.0, PostgreSQL=34.0)],
        "bare processes": [run(1952, main=1016.0, broker=5.0)],
    }}}}  # fmt: skip
    words = beyond_work(
        *(side_of("cpu_bound-2", "1 ms", side) for side in ("Oncepool", "bare processes"))
    )(results)
    assert words.startswith(
        "152 us of CPU more than the work of each: workers beside the work itself 91.0, "
        "PostgreSQL 34.0, main 32.0; cores"
    )


def test_a_status_costs_what_is_not_spent_without_it() -> None:
    results = {"handoff-2": {"found": {"no-op": {
        "told": [run(1, main=7.0, worker=19.0, Valkey=7.0)],
        "untold": [run(1, main=6.0, worker=12.0)],
    }}}}  # fmt: skip
    words = of_status(*(side_of("handoff-2", "no-op", side) for side in ("told", "untold")))
    assert words(results) == (
        "the status of each is 15.0 of 33.0 us: worker 7.00, Valkey 7.00, all else 1.00"
    )


def test_one_worker_is_told_beside_two() -> None:
    words = one_and_two("no-op", "afternoon")(peers())
    assert words.count("46.0 us of CPU for each against 29.0") == 2


def test_a_cause_without_figures_is_none() -> None:
    found = peers()
    found["peers-2"]["found"]["no-op"]["Oncepool"] = [{"rate": 40_000, "cpu": {}}] * 3
    with pytest.raises(ValueError, match="could tell"):
        apart(of("Oncepool"), of("afternoon"))(found)
    judged = {verdict.goal.what: verdict for verdict in verdicts(found)}
    assert judged["no-op / afternoon"].why == UNTOLD


TIMES = {
    "Oncepool, client": [{"p50": 5.0, "p99": 15.0}],
    "afternoon": [{"p50": 2.0, "p99": 10.0}],
    "a commit": [{"p50": 0.5, "p99": 1.0}],
    "Kafka alone": [{"p50": 0.4, "p99": 7.0}],
    "Oncepool, client, half load": [{"p50": 28.0, "p99": 136.0}],
}


def test_what_is_over_of_an_idle_request_is_told_by_step_where_that_was_measured() -> None:
    results: dict[str, Any] = {"latency": {"found": TIMES}}
    over = idle_over("p50", "afternoon", plus="a commit")
    assert over(results) == "5.00 ms against 2.00 and 0.50: 2.50 over; by step not measured"
    results["latency"]["steps"] = [
        {"step": "fetched", "median": 0.9, "slow": 1.5},
        {"step": "ended", "median": 1.1, "slow": 9},
    ]  # fmt: skip
    assert over(results).endswith("2.50 over; by step, ms: ended 1.10, fetched 0.90")
    slow = idle_over("p99", "Kafka alone")(results)
    assert "8.00 over, where Kafka alone itself had 7.00 in its rounds" in slow
    assert slow.endswith("by step, of the slowest of a hundred, ms: ended 9, fetched 1.50")
    assert by_step({}, slow=True) == "by step not measured"
    assert half_load(results).startswith("p50 28.0 ms against 5.00")


def test_figures_of_random_ids_are_shown_and_judged_by_nothing() -> None:
    found = {
        "empty": [run(100, PostgreSQL=9.0)],
        "10,000,000 rows, random ids": [run(60, PostgreSQL=20.0)],
        "50,000,000 rows, random ids": [run(110, PostgreSQL=9.0)],
    }
    results = {"journal_size": {"found": found}}
    judged = {verdict.goal.what: verdict for verdict in verdicts(results)}
    less, more = (judged[f"journal of {n} M rows, random ids / empty"] for n in (10, 50))
    assert (less.words, less.wanted, less.missed) == ("shown; nothing was wanted", "", False)
    assert "PostgreSQL +11.0" in less.why
    assert more.why == ""
    assert "PostgreSQL +11.0" in apart(
        journal_of("10,000,000 rows, random ids"), journal_of("empty")
    )(results)


def test_what_a_full_queue_costs_is_told_where_it_was_measured() -> None:
    sides = {"empty queue": 9.0, "beside a full queue": 12.0}
    kept: dict[str, Any] = {"requests_per_second": {"bench.noop": {s: [100.0] for s in sides}}}
    words = apart(*(waiting_of("bench.noop", side) for side in reversed(sides)))
    with pytest.raises(KeyError):
        words({"waiting": kept})
    kept["cpu"] = {"bench.noop": {s: [{"PostgreSQL": cost}] for s, cost in sides.items()}}
    assert words({"waiting": kept}).startswith(
        "12.0 us of CPU for each against 9.00: PostgreSQL +3.0 (12.0 against 9.00); cores at work"
    )


def test_one_worker_is_judged_over_all_kinds_of_work_with_its_spread() -> None:
    results = peers()
    faster = [run(rate, main=1.0) for rate in (48_000, 52_000, 50_000)]
    results["peers-1"]["found"]["no-op"] = {**results["peers-1"]["found"]["no-op"],
                                            "Oncepool": faster}  # fmt: skip
    judged = {verdict.goal.what: verdict for verdict in verdicts(results)}
    found = judged["no-op / afternoon, one worker's ratio over two workers'"].found
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((1.2, 1.25, 1.3))
    assert judged["no-op / ec01882, one worker's ratio over two workers'"].found is not None
    for case in ("one INSERT", "batch, COPY"):
        assert judged[f"{case} / afternoon, one worker's ratio over two workers'"].found is None


def test_the_sum_that_any_design_needs_takes_services_python_and_librdkafka() -> None:
    text = text_of(peers())
    # PostgreSQL 8, Valkey 2 and Python 12 of the limit; broker 1, librdkafka 2 of the loops
    assert "| no-op | 8.00 | 2.00 | 1.00 | 2.00 | 12.0 | 25.0 | 46.0 | 1.84 |" in text
    assert UNLIKE not in text
    assert "## What any design needs\n\nNot measured.\n" in text_of({})


def test_a_run_without_other_frameworks_says_so() -> None:
    results = peers()
    assert text_of(results).count(LEFT_OUT) == 3
    for document in results.values():
        document["frameworks"] = {"DBOS": "3.4.0"}
    text = text_of(results)
    assert LEFT_OUT not in text
    assert "by which page: [peers](../benchmarks/README.md#peers)." in text


def test_an_older_bare_limit_is_told_as_one() -> None:
    assert THEN < ALIKE_SINCE < NOW
    assert UNLIKE in text_of(peers(THEN))
