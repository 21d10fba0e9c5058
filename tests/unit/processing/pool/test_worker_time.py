"""Shares of the workers' time, and what the pool makes of them."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

import pytest

from feedback.contract.record import TYPE, Record
from processing.ipc.frames import Report, RunChunk
from processing.pool.actions import Send, Spawn
from processing.pool.pool import Pool
from processing.pool.worker_time import (
    ANSWERED,
    CHUNK_SECONDS,
    MOST_KINDS,
    MOST_REMEMBERED,
    AloneQueue,
    Costs,
    QueueShare,
    TimeShares,
)
from processing.settings import PoolSettings

# Many steps of pure code, three times slower where its branches are measured.
pytestmark = pytest.mark.no_cover

BACKEND = (4711, "then")
SECONDS = {"quick": 0.001, "slow": 10.0, "half": 0.5}


def test_who_had_least_goes_next() -> None:
    shares: TimeShares[str] = TimeShares()
    assert shares.in_turn(["a", "b"]) == ["a", "b"]
    shares.served("a", 2.0)
    assert shares.in_turn(["a", "b"]) == ["b", "a"]
    for _ in range(3):
        shares.served("b", 1.0)
    assert shares.in_turn(["a", "b"]) == ["a", "b"]


def test_nobody_is_owed_anything_for_a_time_in_which_he_wanted_nothing() -> None:
    shares: TimeShares[str] = TimeShares()
    for _ in range(10):
        shares.served("a", 1.0)
    shares.served("b", 1.5)
    assert shares.in_turn(["b", "a"]) == ["a", "b"]


def test_clocks_are_bounded_and_who_had_most_keeps_his_debt() -> None:
    shares: TimeShares[str] = TimeShares()
    shares.served("a", 1000.0)
    for number in range(5 * MOST_REMEMBERED):
        shares.served(f"made up {number}", 0.05)
        assert len(shares._clocks) <= MOST_REMEMBERED
    assert shares.in_turn(["a", "new"]) == ["new", "a"]


def record(offset: int, kind: str) -> Record:
    return ("topic", 0, offset, 0, None, b"{}", [], kind, None)


def pool_with(workers: int, *known: str) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i"))
    for kind in known:
        pool.costs.observe(kind, 1, SECONDS[kind])
    for action in pool.plan(0.0):
        assert isinstance(action, Spawn)
        pool.crew.connected(action.worker, BACKEND)
        pool.ready(action.worker)
    return pool


def chunks(actions: list[Any]) -> list[tuple[int, RunChunk]]:
    return [
        (a.worker, a.frame)
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def done(chunk: int, **times: tuple[int, float]) -> Report:
    return Report(chunk, [], [], dict(times), {}, database_up=True)


def worked(*kinds: str, until: float = 100.0) -> dict[str, float]:
    """Worker seconds that each kind got, where four workers always have some of each to do."""
    pool = pool_with(4, *kinds)
    seconds = dict.fromkeys(kinds, 0.0)
    waiting = Counter[str]()
    free_at = dict.fromkeys(pool.workers, 0.0)
    ends: list[tuple[float, int, int, Report]] = []
    now, offset = 0.0, 0
    while now < until:
        for kind in kinds:
            more = 1000 - waiting[kind]
            pool.submit([record(offset + n, kind) for n in range(more)])
            waiting[kind], offset = 1000, offset + more
        for worker, chunk in chunks(pool.plan(now)):
            counts = Counter(str(r[TYPE]) for r in chunk.records)
            waiting -= counts
            times = {kind: (n, n * SECONDS[kind]) for kind, n in counts.items()}
            for kind, (_, took) in times.items():
                seconds[kind] += took
            free_at[worker] = max(now, free_at[worker]) + sum(t for _, t in times.values())
            heapq.heappush(
                ends, (free_at[worker], chunk.number, worker, done(chunk.number, **times))
            )
        now, _, worker, report = heapq.heappop(ends)
        pool.report(worker, report)
    return seconds


@pytest.mark.parametrize("kinds", [("quick", "slow"), ("slow", "half")])
def test_kinds_share_the_workers_time_not_their_turns(kinds: tuple[str, str]) -> None:
    got = worked(*kinds)
    assert 0.4 < got[kinds[0]] / sum(got.values()) < 0.6, got


def test_types_that_somebody_makes_up_do_not_fill_the_memory() -> None:
    costs = Costs()
    costs.observe("pay", 1, 0.001)
    for n in range(MOST_KINDS + 100):
        costs.observe(f"made up {n}", 0, 0.0)
        costs.observe("pay", 1, 0.001)
    assert len(costs._means) == MOST_KINDS
    assert costs.of("pay") == pytest.approx(0.001)
    assert costs.of("made up 0") is None


def test_what_no_handler_runs_for_goes_in_company_after_the_first() -> None:
    pool = pool_with(1, "quick")
    pool.submit([record(n, "resent") for n in range(200)])
    assert [len(c.records) for _, c in chunks(pool.plan(1.0))] == [1]
    pool.report(0, done(0))
    assert [len(c.records) for _, c in chunks(pool.plan(1.1))] == [round(CHUNK_SECONDS / ANSWERED)]


def test_what_goes_alone_is_not_kept_waiting_by_a_backlog_of_quick_ones() -> None:
    pool = pool_with(1, "quick")
    pool.submit([record(n, "quick") for n in range(20_000)])
    pool.submit([record(20_000 + n, "unread") for n in range(200)])
    ran = 0
    for turn in range(400):
        for _, chunk in chunks(pool.plan(float(turn))):
            ran += sum(r[TYPE] == "unread" for r in chunk.records)
        if ran == 200:
            break
        pool.report(0, done(pool.workers[0].chunks[0].number, quick=(500, 0.05)))
    assert ran == 200
    assert pool.in_hand > 50


class Kind(str):
    """A type that counts how often anything looks at one."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Kind.looks += 1
        return super().__hash__()


def looks_at_kinds(count: int) -> int:
    """How often main looks at a kind while so many requests run, each of a type of its own."""
    pool = pool_with(2)
    pool.submit([record(n, Kind(f"made up {n}")) for n in range(count)])
    Kind.looks, ran, turn = 0, 0, 0.0
    while ran < count:
        turn += 1.0
        for worker, chunk in chunks(pool.plan(turn)):
            ran += len(chunk.records)
            pool.report(worker, done(chunk.number))
    return Kind.looks


def test_what_a_request_costs_main_does_not_depend_on_how_many_types_wait() -> None:
    assert looks_at_kinds(1600) < 1.5 * 8 * looks_at_kinds(200)


def test_a_kind_that_got_quick_waits_no_longer_for_its_turn_and_another_does() -> None:
    pool = pool_with(1)
    kinds = ["a", "b", "a", "c", "b", "a"]
    pool.submit([record(n, kind) for n, kind in enumerate(kinds)])
    assert [[r[TYPE] for r in c.records] for _, c in chunks(pool.plan(1.0))] == [["a"]]
    ran = []
    for turn in range(2, 6):
        (chunk,) = pool.workers[0].chunks
        kind = chunk.records[0][TYPE] or ""
        pool.report(0, done(chunk.number, **{kind: (1, 0.001 if kind == "a" else 1.0)}))
        ran += [[r[TYPE] for r in c.records] for _, c in chunks(pool.plan(float(turn)))]
    assert ran == [["a", "a"], ["b"], ["c"], ["b"]]


def waiting_in_turn(queue: AloneQueue[int]) -> list[QueueShare]:
    return list(queue.shares())


def test_shares_go_by_what_they_had_then_by_how_long_they_wait() -> None:
    queue: AloneQueue[int] = AloneQueue()
    a, b, c = QueueShare("a", False), QueueShare("a", True), QueueShare("c", False)
    for number, share in enumerate((a, b, c, a)):
        queue.put(share, number)
    assert waiting_in_turn(queue) == [a, b, c]
    assert queue.take_at(a) == 0
    queue.served(a, 1.0)
    assert waiting_in_turn(queue) == [b, c, a]
    queue.served(b, 2.0)  # held a worker up: was not taken out just now
    assert waiting_in_turn(queue) == waiting_in_turn(queue) == [c, a, b]
    assert queue.take_at(a) == 3
    queue.put(a, 4, first=True)  # a turn of its own, and the one before is over
    assert waiting_in_turn(queue) == [c, a, b]
    queue.remove(2)
    assert (waiting_in_turn(queue), queue.take(["a"])) == ([a, b], [4, 1])
    assert not waiting_in_turn(queue)


def test_turns_that_are_over_are_not_kept() -> None:
    queue: AloneQueue[int] = AloneQueue()
    queue.put(QueueShare("slow", False), 0)
    queue.served(QueueShare("slow", False), 1000.0)
    for number in range(5 * MOST_REMEMBERED):
        queue.remove(number)
        queue.put(QueueShare("slow", False), number + 1)
    assert len(queue._turns) <= MOST_REMEMBERED + 3
    assert waiting_in_turn(queue) == [QueueShare("slow", False)]


def test_what_no_handler_runs_for_says_nothing_of_what_others_take() -> None:
    costs = Costs()
    costs.observe("a", 1, 0.01)
    records = [record(n, "a") for n in range(500)]
    costs.reported(records, {})
    assert costs.of("a") == 0.01
    # One of five hundred ran.
    costs.reported(records, {"a": (1, 0.01)})
    assert costs.of("a") == pytest.approx(0.01)
