"""What a request costs each process, in benchmarks that measure something else."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import full_path_sides, latency
from benchmarks.asking import asked, asked_in_all
from benchmarks.backlog import MemoryLook, thirds
from benchmarks.cpu import per_request, used
from benchmarks.latency import StandingSide, costed
from benchmarks.measured import Measured
from benchmarks.page import text_of
from benchmarks.rebalance_books import BookedRow
from benchmarks.rebalance_load import Asked, Copy
from benchmarks.rebalance_stretch import StretchRun, measure
from benchmarks.sides import cpu_of, rates_of
from benchmarks.tally import Mark
from benchmarks.watch import ProgressWatch
from tests.support.benchmark_results import OTHERS


def test_a_process_that_has_gone_leaves_nothing_to_tell(tmp_path: Path) -> None:
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    assert used([gone], tmp_path).get("main", 0.0) == 0.0
    assert per_request({"main": 3.0, "worker": 1.0}, {"worker": 9.0}, 10) == {}


def test_each_third_of_a_backlog_has_its_cost() -> None:
    marks = [Mark(n / 10, n * 10) for n in range(101)]
    looks = [MemoryLook(n * 10, {"main": 50.0}, {"main": n * n / 100}) for n in range(101)]
    found = thirds(looks, marks, 1000)
    first, second, last = (third["main"] for third in found.cpu)
    assert first < second < last
    assert first == pytest.approx(1e6 * (33**2 - 5**2) / 100 / (330 - 50))
    assert thirds(looks[:2], marks, 1000).cpu == [{}, {}, {}]


def test_an_undisturbed_stretch_tells_what_a_request_costs() -> None:
    asked_of = [Asked(f"r{n}", 1.0, 1.0, [Copy(0, n)], "done") for n in range(4)]
    journal = {
        one.id: BookedRow(one.copies[0], done=True, resends=0, finished=2.0 + n)
        for n, one in enumerate(asked_of)
    }
    spent = {"main": 0.4, "worker": 0.8}
    found = measure(StretchRun(0.0, 4.5, 0.1, (), spent), journal, asked_of, 1)
    assert found.cpu == pytest.approx({"main": 0.4e6 / 3, "worker": 0.8e6 / 3})
    assert measure(StretchRun(0.0, 4.5, 0.1, (), {}), journal, asked_of, 1).cpu == {}


def test_asked_times_cost_what_is_spent_on_them_and_on_the_load_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent = iter([{"main": 1.0}, {"main": 3.0}])
    tallies = iter([100, 130])
    monkeypatch.setattr(latency, "used", lambda *_: next(spent))
    monkeypatch.setattr(latency, "counted", lambda _: SimpleNamespace(requests=next(tallies)))
    where: Any = SimpleNamespace(stack=SimpleNamespace(data=Path()), tally=Path())
    asks: list[None] = []
    found = costed(StandingSide(where, lambda: asks.append(None), [1]), 5)
    assert len(asks) == asked_in_all(5) == 10
    assert found.cpu == {"main": 2e6 / (10 + 30)}
    assert asked(lambda: None, 5).count == found.count == 5


class PlayedWatch(ProgressWatch):
    """Says what is done, look by look."""

    def __init__(self, *done: int) -> None:
        self._done = iter(done)
        self.closed = False

    def done(self) -> int:
        return next(self._done)

    def close(self) -> None:
        self.closed = True


def test_the_cost_of_a_run_begins_after_its_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([{"main": 1.0, "PostgreSQL": 1.0}, {"main": 2.0, "PostgreSQL": 5.0}])
    monkeypatch.setattr(full_path_sides, "used", lambda *_: next(spent))
    monkeypatch.setattr(full_path_sides, "rate", lambda *_: 123.0)
    where: Any = SimpleNamespace(stack=SimpleNamespace(data=Path()))
    watch = PlayedWatch(300, 1000)
    found = full_path_sides.measured(where, "requests", 1000, watch)
    assert found == Measured(123.0, {"main": 1e6 / 700, "PostgreSQL": 4e6 / 700})
    assert watch.closed


def test_rates_and_costs_are_kept_apart() -> None:
    found = {"bench.noop": {"Oncepool": [Measured(9.0, {"main": 4.0}), Measured(7.0, {})]}}
    assert rates_of(found) == {"bench.noop": {"Oncepool": [9.0, 7.0]}}
    assert cpu_of(found) == {"bench.noop": {"Oncepool": [{"main": 4.0}, {}]}}


def test_the_page_shows_costs_and_says_where_old_results_have_none() -> None:
    assert "by process: not measured." in text_of({"waiting": OTHERS["waiting"]})
    cost = {"main": 4.0, "worker": 6.5}
    waiting = {**OTHERS["waiting"], "cpu": {"bench.noop": {"due rows": [cost]}}}
    assert "| bench.noop, due rows | 4.00 | 6.50 | 0.00 " in text_of({"waiting": waiting})
    recovery = {**OTHERS["recovery"], "cpu": {"Oncepool": [cost]}}
    assert "| Oncepool | 4.00 | 6.50 | 0.00 " in text_of({"recovery": recovery})
    found = {"Oncepool, client": [{"p50": 1.0, "p99": 2.0, "longest": 3.0, "cpu": cost}]}
    latency = {**OTHERS["latency"], "found": found}
    assert "| Oncepool, client | 4.00 | 6.50 | 0.00 " in text_of({"latency": latency})
