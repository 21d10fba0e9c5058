"""When an instance leaves the waiting queue to others, as nothing starts here."""

from __future__ import annotations

import pytest

from feedback.contract.record import Record
from processing.ipc.frames import LimitsFound, Recall, RunChunk, WantRows
from processing.ipc.progress import Running
from processing.pool.actions import Send, Tell
from processing.pool.calls import CALLS
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


def test_calls_stand_where_no_worker_may_have_more_open() -> None:
    pool = pool_with(1)
    pool.app(["quick"], {}, {"quick": 2})
    pool.submit([fresh(1)])
    pool.plan(0.0)
    wants(pool, 0.0)
    wants(pool, 2 * PATIENCE)
    assert CALLS not in pool.queue.standstill.holds
    pool.submit([fresh(2)])
    pool.plan(2 * PATIENCE)
    wants(pool, 3 * PATIENCE - 1)
    assert CALLS not in pool.queue.standstill.holds
    wants(pool, 3 * PATIENCE)
    assert CALLS in pool.queue.standstill.holds


def pool_of_both(workers: int, at_once: int) -> Pool:
    """One whose app has calls, and what goes in chunks and takes long."""
    pool = pool_with(workers, seconds=2 * PATIENCE)
    pool.app(["quick", "call"], {}, {"call": at_once})
    return pool


def call(offset: int) -> Record:
    return ("topic", 0, offset, 0, None, b"{}", [], "call", None)


def due_call(name: str, order: int) -> Record:
    return due(name, order, kind="call")


def chunk_of(pool: Pool, record: Record) -> tuple[int, int]:
    """(worker, chunk)"""
    [found] = [
        (number, chunk.number)
        for number, worker in pool.workers.items()
        for chunk in worker.chunks
        if record in chunk.records
    ]
    return found


def end(pool: Pool, record: Record) -> None:
    worker, chunk = chunk_of(pool, record)
    pool.report(worker, report(chunk))


def test_what_goes_in_chunks_stands_beside_calls_that_go_on() -> None:
    pool = pool_of_both(2, at_once=10)
    pool.submit([fresh(1), fresh(2), call(1), call(2)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    pool.claimed(want.order, [(due("a"), None)], 1.0)
    pool.plan(1.0)
    [want] = wants(pool, PATIENCE - 1)
    end(pool, call(1))
    pool.plan(PATIENCE - 1)
    # No chunk goes to a worker that has calls open, whatever room it has for others.
    [want] = wants(pool, PATIENCE)
    assert (want.most > 0, want.paused) == (True, ["quick"])
    assert pool.take_excess(PATIENCE) == [due("a")]
    pool.claimed(want.order, [(due_call("b", want.order), None)], PATIENCE + 1)
    assert sent(pool.plan(PATIENCE + 1)) == [[(True, want.order)]]
    assert pool.take_excess(PATIENCE + 1) == []
    # The worker that comes free is kept for rows; calls go on in the other one.
    wants(pool, PATIENCE + 1)
    now = PATIENCE + 2
    end(pool, fresh(1))
    pool.submit([call(3)])
    assert sent(pool.plan(now)) == [[(False, 3)]]
    assert chunk_of(pool, call(3))[0] == chunk_of(pool, call(2))[0]
    [want] = wants(pool, now)
    assert want.paused == []
    pool.claimed(want.order, [(due("c", want.order, kind="quick"), None)], now)
    assert len(sent(pool.plan(now))) == 1, "rows share what is free with what is in hand"


def test_shares_of_limits_go_to_others_for_work_that_stands_alone() -> None:
    pool = pool_of_both(2, at_once=10)
    pool.limit(LimitsFound(1, None, {"quick": (None, 4, 1, 4), "call": (None, 4, 1, 4)}, []))
    pool.submit([fresh(1), fresh(2), call(1), call(2)])
    pool.plan(0.0)
    wants(pool, 0.0)
    assert stats_of(pool).needs == {"quick": 2, "call": 2}
    wants(pool, PATIENCE)
    assert stats_of(pool).needs == {"quick": 1, "call": 2}


def test_calls_stand_beside_what_goes_in_chunks() -> None:
    pool = pool_of_both(2, at_once=1)
    pool.submit([call(1), call(2)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    pool.claimed(want.order, [(due_call("a", want.order), None)], 1.0)
    assert sent(pool.plan(1.0)) == [], "one worker is kept for what goes in chunks"
    wants(pool, PATIENCE - 1)
    assert pool.take_excess(PATIENCE - 1) == []
    [want] = wants(pool, PATIENCE)
    assert want.paused == ["call"]
    assert pool.take_excess(PATIENCE) == [due_call("a", 1)]
    pool.claimed(want.order, [(due("b", want.order), None)], PATIENCE + 1)
    assert sent(pool.plan(PATIENCE + 1)) == [[(True, want.order)]]
    end(pool, due("b", want.order))
    wants(pool, PATIENCE + 2)
    # The seat that comes free is kept for rows; the other worker is not.
    pool.submit([fresh(1)])
    end(pool, call(1))
    assert sent(pool.plan(PATIENCE + 3)) == [[(False, 1)]]
    [want] = wants(pool, PATIENCE + 3)
    assert want.paused == []
    wants(pool, PATIENCE + 3 + ROWS_FIRST)
    assert sent(pool.plan(PATIENCE + 3 + ROWS_FIRST)) == [[(False, 2)]], "others have run it"


def test_calls_that_come_and_go_keep_no_rows_from_being_wanted_that_go_in_chunks() -> None:
    pool = pool_of_both(1, at_once=2)
    offset = 2
    pool.submit([call(1), call(2)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    for now in range(1, 30):
        end(pool, call(offset - 1))
        offset += 1
        pool.submit([call(offset)])
        assert sent(pool.plan(float(now))) == [[(False, offset)]]
        assert wants(pool, float(now)) == []
    # It drains for one.
    pool.claimed(want.order, [(due("a"), None)], 30.0)
    pool.submit([call(offset + 1)])
    end(pool, call(offset - 1))
    assert sent(pool.plan(31.0)) == []
    end(pool, call(offset))
    assert sent(pool.plan(32.0)) == [[(True, 1)]]


def test_a_worker_with_calls_drains_for_rows_that_went_back_and_is_kept_for_them() -> None:
    """Else calls would fill it again, and nobody would ever run what goes in chunks."""
    pool = pool_of_both(1, at_once=2)
    pool.submit([call(1), call(2)])
    pool.plan(0.0)
    [want] = wants(pool, 0.0)
    end(pool, call(1))
    wants(pool, 1.0)
    pool.claimed(want.order, [(due("a"), None)], 1.0)
    pool.submit([call(3)])
    assert sent(pool.plan(1.0)) == []
    [want] = wants(pool, 1.0 + PATIENCE)
    assert want.paused == ["quick"]
    assert pool.take_excess(1.0 + PATIENCE) == [due("a")]
    now = 2 * PATIENCE
    assert sent(pool.plan(now)) == []
    end(pool, call(2))
    assert sent(pool.plan(now)) == []
    [want] = wants(pool, now)
    assert want.paused == []
    pool.claimed(want.order, [(due("a", want.order), None)], now)
    assert sent(pool.plan(now)) == [[(True, want.order)]]


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
