"""What a death of a worker costs is counted for the type that is to blame for it."""

from __future__ import annotations

from typing import Any

import pytest

from feedback.contract.record import TYPE, Record
from processing.ipc.frames import Report, RunChunk, Suspect
from processing.ipc.progress import Running
from processing.pool.actions import Send, Spawn
from processing.pool.pool import Pool
from processing.settings import PoolSettings
from tests.support.lanes import record

BACKEND = (4711, "2026-01-01 00:00:00+00")
START, QUICK = 0.7, 0.001
"""Seconds that a worker takes to start, and a request that harms nobody."""


def pool_with(workers: int, **quick: float) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i"))
    for kind, seconds in quick.items():
        pool.costs.observe(kind, 1, seconds)
    begin(pool, pool.plan(0.0))
    return pool


def begin(pool: Pool, actions: list[Any]) -> list[int]:
    """Has the workers started that are to be; their numbers."""
    numbers = [action.worker for action in actions if isinstance(action, Spawn)]
    for number in numbers:
        pool.crew.connected(number, BACKEND)
        pool.ready(number)
    return numbers


def chunks(actions: list[Any]) -> list[tuple[int, RunChunk]]:
    return [
        (a.worker, a.frame)
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def sizes(pool: Pool, now: float) -> list[int]:
    return [len(chunk.records) for _, chunk in chunks(pool.plan(now))]


def done(chunk: int, **times: tuple[int, float]) -> Report:
    return Report(chunk, [], [], dict(times), {}, database_up=True)


@pytest.mark.parametrize("ran", [0.0, 6.0], ids=["at once", "after a while"])
def test_a_quick_type_that_kills_its_worker_goes_alone_from_then_on(ran: float) -> None:
    pool = pool_with(1, kills=QUICK)
    pool.submit([record(n, b"%d" % n, "kills") for n in range(3)])
    assert sizes(pool, 1.0) == [3]
    pool.died(0, "signal SIGKILL", Running(0, 1, None, 1.0), 1.0 + ran)
    pool.take_suspects()
    pool.submit([record(n, b"%d" % n, "kills") for n in range(3, 9)])
    begin(pool, pool.plan(9.0))
    assert sizes(pool, 9.1) == [1]


def test_a_type_of_the_same_chunk_that_is_not_to_blame_does_not() -> None:
    pool = pool_with(1, kills=QUICK, quick=QUICK)
    pool.submit([record(0, b"a", "quick"), record(1, b"b", "kills")])
    pool.plan(1.0)
    pool.died(0, "signal SIGKILL", Running(0, 1, None, 1.0), 7.0)
    pool.take_suspects()
    pool.submit([record(n, b"%d" % n, "quick") for n in range(3, 9)])
    begin(pool, pool.plan(9.0))
    assert sizes(pool, 9.1) == [6]


@pytest.mark.parametrize("verdict", ["timeout", None])
def test_a_suspect_that_is_only_looked_up_does_not_make_its_type_a_quick_one(
    verdict: str | None,
) -> None:
    pool = pool_with(1)
    suspect = Suspect(verdict, (BACKEND,), ("i-0",))
    pool.lanes.submit_suspect(record(0, b"a", "new"), suspect)
    [(worker, chunk)] = chunks(pool.plan(2.0))
    assert chunk.suspect == suspect
    pool.report(worker, done(chunk.number))
    pool.submit([record(n, b"%d" % n, "new") for n in range(1, 6)])
    assert sizes(pool, 3.0) == [1]


def killed_before_others_were_done(pool: Pool, records: list[Record], ran: float) -> int:
    """How many workers die before all is done that is not of the type `kills`.

    Each of those kills its worker after it `ran` so long; the second time that is its end.
    """
    pool.submit(records)
    others = sum(r[TYPE] != "kills" for r in records)
    now, deaths = 1.0, 0
    while others:
        actions = pool.plan(now)
        if begin(pool, actions):
            now += START
            continue
        for worker, chunk in chunks(actions):
            kinds = [r[TYPE] for r in chunk.records]
            if "kills" in kinds and not (chunk.suspect and chunk.suspect.decided):
                running = Running(chunk.number, kinds.index("kills"), None, now)
                now += ran
                pool.died(worker, "exit code 1", running, now)
                deaths += 1
                break  # it had whatever comes after that
            now += len(kinds) * QUICK
            others -= len(kinds) - kinds.count("kills")
            times = {"quick": (len(kinds), len(kinds) * QUICK)}
            pool.report(worker, done(chunk.number, **({} if "kills" in kinds else times)))
        now += 0.001
    return deaths


@pytest.mark.parametrize("ran", [0.0, 6.0], ids=["at once", "after a while"])
@pytest.mark.parametrize("measured", [True, False])
def test_others_do_not_wait_for_all_that_kills(ran: float, *, measured: bool) -> None:
    known = {"kills": QUICK} if measured else {}
    pool = pool_with(1, quick=QUICK, **known)
    records = [record(n, b"%d" % n, "kills" if n % 20 == 0 else "quick") for n in range(20 * 20)]
    assert killed_before_others_were_done(pool, records, ran) <= 3


def test_a_quick_type_that_hung_once_shares_chunks_again_after_a_dozen_quick_runs() -> None:
    """However long it hung: the hours of a hang must not be served by what comes after it."""
    pool = pool_with(1, kills=QUICK)
    pool.submit([record(0, b"a", "kills")])
    pool.plan(1.0)
    pool.died(0, "signal SIGKILL", Running(0, 0, None, 1.0), 7200.0)
    pool.take_suspects()
    pool.submit([record(n, b"%d" % n, "kills") for n in range(1, 100)])
    begin(pool, pool.plan(7201.0))
    alone = 0
    while True:
        [(worker, chunk)] = chunks(pool.plan(7202.0 + alone))
        if len(chunk.records) > 1:
            break
        alone += 1
        pool.report(worker, done(chunk.number, kills=(1, QUICK)))
    assert 1 <= alone <= 12
