"""What is only to be looked up, as its verdict is known, waits for no other request to end."""

from __future__ import annotations

from typing import Any

import pytest

from feedback.contract.record import OFFSET, Record
from processing.ipc.frames import ASK, Report, RunChunk, Suspect
from processing.pool.actions import Send, Spawn
from processing.pool.pool import Pool
from processing.pool.worker_time import QueueShare, share_of
from processing.settings import PoolSettings
from tests.support.lanes import record

BACKEND = (4711, "2026-01-01 00:00:00+00")
DECIDED = Suspect("cancelled", (BACKEND,), ("i-0",), 1)
OPEN = Suspect(None, (BACKEND,), ("i-0",), 1)


def pool_with(workers: int) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i"))
    pool.costs.observe("quick", 1, 0.0001)
    pool.costs.observe("slow", 1, 1.0)
    start(pool, 0.0)
    return pool


def start(pool: Pool, now: float, **calls: int) -> None:
    for action in pool.plan(now):
        if isinstance(action, Spawn):
            pool.crew.connected(action.worker, BACKEND)
            if calls:
                pool.app(["slow", *calls], {}, calls)
            pool.ready(action.worker)


def sent(actions: list[Any]) -> list[tuple[int, list[int], Suspect | None]]:
    """Worker, offsets and what is suspected."""
    return [
        (a.worker, [r[OFFSET] for r in a.frame.records], a.frame.suspect)
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def done(chunk: int, **fields: Any) -> Report:
    return Report(chunk, [], [], {}, {}, database_up=True)._replace(**fields)


def put_back(pool: Pool, worker: int, suspect: Suspect) -> None:
    """What a worker runs comes back, as if it had died; the worker is free."""
    chunk = pool.workers[worker].chunks.pop(0)
    pool.lanes.put_back(chunk, {0: suspect})


@pytest.mark.parametrize("key", [b"a", None])
@pytest.mark.parametrize("others", ["new", "slow", "quick"])
def test_it_goes_before_all_that_waits(key: bytes | None, others: str) -> None:
    pool = pool_with(2)
    pool.submit([record(0, key, "slow"), record(1, None, "slow")])
    assert [offsets for _, offsets, _ in sent(pool.plan(1.0))] == [[0], [1]]
    pool.submit([record(n, b"%d" % n, others) for n in range(2, 9)])
    assert sent(pool.plan(2.0)) == []
    put_back(pool, 0, DECIDED)
    assert sent(pool.plan(3.0)) == [(0, [0], DECIDED)]
    pool.report(0, done(2))
    assert sent(pool.plan(3.1)) != [], "then the others"


def test_it_goes_before_calls_too() -> None:
    pool = Pool(PoolSettings(workers=1, instance="i"))
    start(pool, 0.0, call=3)
    pool.submit([record(0, b"a", "slow")])
    assert [offsets for _, offsets, _ in sent(pool.plan(1.0))] == [[0]]
    pool.submit([record(n, None, "call") for n in range(1, 9)])
    put_back(pool, 0, DECIDED)
    assert sent(pool.plan(2.0)) == [(0, [0], DECIDED)]


def test_it_needs_no_room_in_the_limit_of_its_type() -> None:
    pool = pool_with(2)
    pool.submit([record(0, b"a", "slow"), record(1, b"b", "slow")])
    pool.plan(1.0)
    pool.lanes.limit({"slow": 1}, {"slow": 1})
    put_back(pool, 0, OPEN)
    assert sent(pool.plan(2.0)) == [], "it may run"
    pool.submit([record(2, b"c", "new")])
    assert [offsets for _, offsets, _ in sent(pool.plan(3.0))] == [[2]]
    put_back(pool, 0, DECIDED)
    assert sent(pool.plan(4.0)) == [(0, [2], DECIDED)]
    pool.report(0, done(3))
    put_back(pool, 1, DECIDED)
    assert sent(pool.plan(5.0))[0][1:] == ([1], DECIDED)


def test_what_may_run_again_has_its_turn_beside_the_fresh_ones_of_its_type() -> None:
    pool = pool_with(1)
    pool.submit([record(0, b"a", "slow")])
    pool.plan(1.0)
    pool.submit([record(n, b"%d" % n, "slow") for n in range(1, 100)])
    put_back(pool, 0, OPEN)
    ran: list[int] = []
    for turn in range(3):
        [(_, offsets, _)] = sent(pool.plan(2.0 + turn))
        ran += offsets
        pool.report(0, done(pool.workers[0].chunks[0].number))
    assert 0 in ran


def test_a_flood_that_may_run_again_leaves_others_their_turn() -> None:
    pool = pool_with(1)
    for number in range(50):
        pool.lanes.submit_suspect(record(number, b"%d" % number, "slow"), OPEN)
    pool.submit([record(50 + n, b"x", "new") for n in range(5)])
    ran: list[int] = []
    for turn in range(12):
        [(_, offsets, _)] = sent(pool.plan(2.0 + turn))
        ran += offsets
        number = pool.workers[0].chunks[0].number
        pool.report(0, done(number, times={"new": (1, 1.0)} if offsets[0] >= 50 else {}))
    assert sum(n >= 50 for n in ran) == 5


def test_looking_up_is_not_charged_to_anybody() -> None:
    """Else what other types are owed would be forgotten with each death."""
    pool = pool_with(1)
    pool.submit([record(0, None, "slow")])
    pool.plan(1.0)
    before = dict(pool._dispatch._shares._clocks), pool._dispatch._shares._now
    put_back(pool, 0, DECIDED)
    assert sent(pool.plan(2.0)) == [(0, [0], DECIDED)]
    assert (dict(pool._dispatch._shares._clocks), pool._dispatch._shares._now) == before


def test_a_check_may_take_long_so_it_has_its_turn_like_others() -> None:
    asked: Record = record(0, None, "slow")
    assert share_of(asked, Suspect(ASK, (), ())) == QueueShare("slow", False, suspect=True)
    assert share_of(asked, DECIDED) == QueueShare("slow", False, suspect=True, decided=True)
