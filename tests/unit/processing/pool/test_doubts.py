"""Requests in doubt are wanted few at a time, and never of types that run elsewhere."""

from __future__ import annotations

from typing import Any

from feedback.contract.record import NOWHERE, Record
from processing.ipc.frames import ASK, NO_ORDER, Report, RunChunk, WantDoubts
from processing.ipc.progress import Running
from processing.pool.actions import Send, Spawn, Tell
from processing.pool.doubts import LOOK_EVERY
from processing.pool.pool import Pool
from processing.settings import PoolSettings


def pool_with(workers: int = 1, *checked: str) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i", max_due=100))
    for action in pool.plan(0.0):
        assert isinstance(action, Spawn)
        pool.ready(action.worker)
    pool.app(["charge"], {}, {}, checked)
    return pool


def doubtful(name: str) -> Record:
    headers: Any = [("ce_id", name.encode()), ("ce_type", b"charge")]
    return ("topic", NOWHERE, NOWHERE, 0, None, b"{}", headers, "charge", NO_ORDER)


def wanted(pool: Pool, now: float) -> list[WantDoubts]:
    told = [action.frame for action in pool.ask(now) if isinstance(action, Tell)]
    return [frame for frame in told if isinstance(frame, WantDoubts)]


def chunks(pool: Pool, now: float) -> list[RunChunk]:
    sent = [action.frame for action in pool.plan(now) if isinstance(action, Send)]
    return [frame for frame in sent if isinstance(frame, RunChunk)]


def report(number: int) -> Report:
    return Report(number, [], [], {}, {}, database_up=True)


def test_nobody_looks_for_them_without_a_check() -> None:
    assert wanted(pool_with(8), 0.0) == []


def test_they_are_looked_for_now_and_then_for_a_quarter_of_the_workers() -> None:
    pool = pool_with(8, "charge")
    assert wanted(pool, 0.0) == [WantDoubts(("charge",), 2)]
    assert wanted(pool, LOOK_EVERY - 0.1) == []
    assert wanted(pool, LOOK_EVERY) == [WantDoubts(("charge",), 2)]


def test_they_are_asked_one_by_one_and_the_next_ones_wanted_at_once() -> None:
    pool = pool_with(1, "charge")
    wanted(pool, 0.0)
    pool.claimed(NO_ORDER, [(doubtful("a"), ASK), (doubtful("b"), ASK)], 0.1)
    assert (pool.in_hand, pool.wants.pairs) == (2, []), "no lease of theirs is renewed"
    for left in (1, 0):
        [chunk] = chunks(pool, 0.2)
        assert len(chunk.records) == 1
        assert chunk.suspect is not None
        assert chunk.suspect.verdict == ASK
        assert wanted(pool, LOOK_EVERY) == [], "some are in hand"
        pool.report(0, report(chunk.number))
        assert pool.in_hand == left
    assert pool.in_hand_bytes == 0
    assert wanted(pool, 0.3) == [WantDoubts(("charge",), 1)]


def test_one_whose_worker_dies_is_still_only_to_be_asked_about() -> None:
    pool = pool_with(1, "charge")
    pool.claimed(NO_ORDER, [(doubtful("a"), ASK)], 0.0)
    [chunk] = chunks(pool, 0.0)
    pool.died(0, "signal SIGKILL", Running(chunk.number, 0, None, 0.0), 1.0)
    for action in pool.plan(10.0):
        assert isinstance(action, Spawn)
        pool.ready(action.worker)
    [again] = chunks(pool, 10.0)
    assert again.suspect is not None
    assert (again.suspect.verdict, again.suspect.crashes) == (ASK, 1)


def test_none_are_wanted_while_it_stops_or_the_database_is_away() -> None:
    pool = pool_with(1, "charge")
    pool.database(up=False)
    assert wanted(pool, 0.0) == []
    pool.database(up=True)
    pool.stop()
    assert wanted(pool, 0.0) == []
