"""When an instance leaves the waiting queue to others, as nothing starts here."""

from __future__ import annotations

import pytest

from processing.ipc.frames import LimitsFound, Recall, RunChunk, WantRows
from processing.ipc.progress import Running
from processing.pool.actions import Send, Tell
from processing.pool.demand import PATIENCE
from processing.pool.dispatch import TRY_EVERY
from processing.pool.pool import Pool
from processing.pool.pool_stats import stats_of
from processing.pool.standstill import ROWS_FIRST
from tests.support.played_pool import wants
from tests.unit.processing.pool.test_pool_due import BACKEND, due, fresh, pool_with, report, sent


def numbers(pool: Pool) -> list[int]:
    return [chunk.number for chunk in pool.crew.chunks]


def test_at_a_standstill_no_rows_are_wanted_and_those_that_wait_go_back() -> None:
    pool = pool_with(2, seconds=5.0)
    pool.submit([fresh(1), fresh(2)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    pool.claimed(want.order, [(due("a"), None)], 1.0)
    [want] = wants(pool, PATIENCE - 1)
    assert pool.take_excess(PATIENCE - 1) == []
    pool.claimed(want.order, [(due("b", 2), None)], PATIENCE - 1)
    [again] = wants(pool, PATIENCE - 0.5)
    assert wants(pool, PATIENCE) == [WantRows(again.order + 1, 0, {}, [])]
    assert pool.take_excess(PATIENCE) == [due("a"), due("b", 2)]
    assert len(pool.wants) == 0
    # What was on its way goes back as well.
    pool.claimed(again.order, [(due("c", 3), None)], PATIENCE + 1)
    assert pool.take_excess(PATIENCE + 1) == [due("c", 3)]
    assert wants(pool, PATIENCE + 2) == []
    pool.report(0, report(numbers(pool)[0]))
    [want] = wants(pool, PATIENCE + 3)
    assert want.most == 4, "as many as two workers have before them"


@pytest.mark.parametrize("kind", ["quick", "short"])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_that_go_back_at_each_standstill_get_what_comes_free(workers: int, kind: str) -> None:
    """A backlog of long runs is in hand: it must not take each worker before a row is claimed."""
    pool = pool_with(workers, seconds=2 * PATIENCE)
    pool.costs.observe("short", 1, 0.001)
    pool.submit([fresh(n) for n in range(20)])
    now, ran = 0.0, list[bool]()
    for _ in range(4):
        pool.plan(now)
        [want] = wants(pool, now)
        pool.claimed(want.order, [(due("a", want.order, kind=kind), None)], now + 0.1)
        ran += [r for chunk in sent(pool.plan(now + 0.1)) for r, _ in chunk]
        wants(pool, now + PATIENCE)
        pool.take_excess(now + PATIENCE)
        now += 2 * PATIENCE
        pool.report(0, report(pool.workers[0].chunks[0].number))
    assert ran.count(True) >= 2, "of three that came after one had gone back"


def test_what_comes_free_waits_for_rows_only_where_some_went_back_and_not_for_long() -> None:
    pool = pool_with(1, seconds=2 * PATIENCE)
    pool.submit([fresh(n) for n in range(4)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    wants(pool, PATIENCE)
    pool.report(0, report(*numbers(pool)))
    assert sent(pool.plan(PATIENCE + 1)) == [[(False, 1)]], "none went back"
    [want] = wants(pool, PATIENCE + 1)
    pool.claimed(want.order, [(due("a"), None)], PATIENCE + 1)
    wants(pool, 2 * PATIENCE + 1)
    assert pool.take_excess(2 * PATIENCE + 1) == [due("a")]
    pool.report(0, report(*numbers(pool)))
    at = 2 * PATIENCE + 2
    assert sent(pool.plan(at)) == []
    assert [want.most > 0 for want in wants(pool, at)] == [True]
    assert sent(pool.plan(at + 0.9 * ROWS_FIRST)) == []
    assert sent(pool.plan(at + ROWS_FIRST)) == [[(False, 2)]], "others have run it"


def test_a_busy_pool_with_short_runs_claims_ahead() -> None:
    pool = pool_with(1, seconds=0.9)
    pool.submit([fresh(n) for n in range(100)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    pool.claimed(want.order, [(due(f"d{n}"), None) for n in range(100)], 0.0)
    for second in range(1, 60):
        pool.report(0, report(*numbers(pool)))
        pool.plan(float(second))
        assert numbers(pool), "never idle when it is asked what is wanted"
        assert all(want.most for want in wants(pool, float(second)))
        assert not pool.queue.standstill.holds


def test_a_worker_that_may_have_more_calls_open_is_no_standstill() -> None:
    pool = pool_with(1)
    pool.app(["quick"], {}, {"quick": 2})
    pool.submit([fresh(1)])
    pool.plan(0.0)
    wants(pool, 0.0)
    wants(pool, 2 * PATIENCE)
    assert not pool.queue.standstill.holds
    pool.submit([fresh(2)])
    pool.plan(2 * PATIENCE)
    wants(pool, 3 * PATIENCE - 1)
    assert not pool.queue.standstill.holds
    wants(pool, 3 * PATIENCE)
    assert pool.queue.standstill.holds


def test_rows_go_back_where_no_worker_comes() -> None:
    pool = pool_with(1)
    [want] = wants(pool, 0.0)
    pool.died(0, "signal SIGKILL", None, 1.0)
    wants(pool, 1.0)
    pool.claimed(want.order, [(due("a"), None)], 2.0)
    wants(pool, PATIENCE)
    assert pool.take_excess(PATIENCE) == [due("a")]


def test_the_only_worker_gives_back_due_rows_behind_a_long_run() -> None:
    pool = pool_with(1)
    pool.submit([fresh(1), fresh(2)])
    pool.plan(0.0)
    assert pool.tick({0: Running(0, 0, None, 0.0)}, 1.0) == [], "nobody else could run it"
    pool.report(0, report(0))
    pool.claimed(1, [(due("a"), None), (due("b"), None)], 2.0)
    pool.plan(2.0)
    assert pool.tick({0: Running(1, 0, None, 2.0)}, 3.0) == [Send(0, Recall())]


def test_an_instance_that_is_cut_off_wants_no_rows_gives_back_what_it_has_and_tries() -> None:
    pool = pool_with(1)
    pool.limit(LimitsFound(1, None, {"quick": (None, 4, 4, 4)}, []))
    [want] = wants(pool, 0.0)
    pool.claimed(want.order, [(due("a"), None), (due("b"), None)], 0.0)
    pool.plan(0.0)
    [other] = wants(pool, 0.1)
    pool.report(0, report(0, returned=[0, 1], database_up=False))
    assert wants(pool, 1.0) == [WantRows(other.order + 1, 0, {}, [])]
    assert stats_of(pool).needs == {"quick": 0}, "others have its share meanwhile"
    assert len(pool.take_excess(1.0)) == 2
    assert pool.in_hand == 0
    pool.database(up=True)  # as the maintenance process sees it
    for n, now in enumerate((1.0, 1.0 + TRY_EVERY), 1):
        assert sent(pool.plan(now)) == [[]]
        pool.report(0, report(n, database_up=False))
        pool.database(up=True)
        assert sent(pool.plan(now + TRY_EVERY - 0.1)) == []
        assert wants(pool, now) == []
        assert stats_of(pool).cut_off
    [send] = pool.plan(1.0 + 2 * TRY_EVERY)
    assert isinstance(send, Send)
    assert isinstance(send.frame, RunChunk)
    pool.crew.connected(0, BACKEND)
    assert pool.report(0, report(send.frame.number)) == []
    assert not stats_of(pool).cut_off
    [tell] = pool.ask(20.0)
    assert isinstance(tell, Tell)
    assert isinstance(tell.frame, WantRows)
    assert tell.frame.most
