"""Calls in the pool's decisions: who gets them, in which order, and what their ends mean."""

from __future__ import annotations

import random
import signal
from collections import Counter, defaultdict
from typing import Any

import pytest

from feedback.contract.record import KEY, OFFSET, TYPE, Record
from processing.ipc.channel import WrongFrame
from processing.ipc.frames import (
    Cancel,
    CancelAsked,
    LimitsFound,
    Recall,
    Report,
    Returned,
    RunChunk,
    Suspect,
)
from processing.ipc.progress import Running
from processing.pool.actions import Died, Send, Signal
from processing.pool.calls import SeatLooks
from processing.pool.pool import Pool
from processing.pool.worker_time import OVERHEAD
from processing.settings import PoolSettings

BACKEND = (4711, "2026-01-01 00:00:00+00")


def call(offset: int, key: bytes | None = None, kind: str = "call") -> Record:
    headers: list[tuple[str, bytes | None]] = [("ce_id", b"id-%d" % offset)]
    return ("topic", 0, offset, 0, key, b"{}", headers, kind, None)


def report(chunk: int, **fields: Any) -> Report:
    return Report(chunk, [], [], {}, {}, database_up=True)._replace(**fields)


def pool_with(
    workers: int, most: int = 3, others: tuple[str, ...] = (), kill_gap: float = 2.0
) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i", kill_gap=kill_gap))
    pool.costs.observe("quick", 1, 0.0001)
    for action in pool.plan(0.0):
        pool.crew.connected(action.worker, BACKEND)  # type: ignore[union-attr]
        pool.app(["call", *others], {}, {"call": most})
        pool.ready(action.worker)  # type: ignore[union-attr]
    return pool


def frames(actions: list[Any]) -> list[tuple[int, RunChunk]]:
    return [
        (a.worker, a.frame)
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def offsets(actions: list[Any]) -> list[int]:
    return [r[OFFSET] for _, frame in frames(actions) for r in frame.records]


def looks_of(pool: Pool, deadline: float | None = 10.0, started: float = 0.0) -> SeatLooks:
    """Every open call runs."""
    return {
        n: {s: Running(c.number, 0, deadline, started) for s, c in w.seats.taken.items()}
        for n, w in pool.workers.items()
    }


def test_a_worker_gets_calls_up_to_its_bound_and_one_more_for_each_end_in_any_order() -> None:
    pool = pool_with(1)
    pool.submit([call(n) for n in range(5)])
    opened = frames(pool.plan(0.0))
    assert [frame.seat for _, frame in opened] == [0, 1, 2]
    assert pool.plan(0.0) == []
    pool.report(0, report(opened[1][1].number, times={"call": (1, 3.0)}))
    ((_, fourth),) = frames(pool.plan(0.0))
    assert (fourth.seat, fourth.records[0][OFFSET]) == (1, 3)
    with pytest.raises(WrongFrame):
        pool.report(0, report(opened[1][1].number))


def test_calls_fill_one_worker_before_the_next() -> None:
    pool = pool_with(3)
    pool.submit([call(n) for n in range(7)])
    assert Counter(worker for worker, _ in frames(pool.plan(0.0))) == {0: 3, 1: 3, 2: 1}


def test_of_one_key_one_call_is_open_at_a_time_in_its_order() -> None:
    pool = pool_with(2)
    pool.submit([call(n, b"k") for n in range(3)])
    for n in range(3):
        ((worker, frame),) = frames(pool.plan(0.0))
        assert frame.records[0][OFFSET] == n
        pool.report(worker, report(frame.number))


def test_a_worker_has_calls_or_chunks_and_one_of_several_is_kept_for_chunks() -> None:
    pool = pool_with(2, others=("quick",))
    pool.submit([call(n) for n in range(9)])
    assert {worker for worker, _ in frames(pool.plan(0.0))} == {0}
    pool.submit([call(20, None, "quick")])
    ((worker, frame),) = frames(pool.plan(0.0))
    assert (worker, frame.seat) == (1, None)


def test_with_one_worker_chunks_and_calls_take_turns() -> None:
    pool = pool_with(1, others=("quick",))
    pool.submit([call(n) for n in range(2000)])
    pool.submit([call(n, None, "quick") for n in range(5000, 80000)])
    seen: Counter[bool] = Counter()
    switches, last, most = 0, None, 0
    for _ in range(300):
        pool.plan(0.0)
        worker = pool.workers[0]
        kinds = {chunk.seat is not None for chunk in worker.chunks}
        assert len(kinds) == 1
        (calls,) = kinds
        switches += calls is not last
        last = calls
        chunk = worker.chunks[0]
        seen[calls] += 1
        most = max(most, len(worker.seats.taken))
        pool.report(0, report(chunk.number, times={"call": (1, 0.3)} if calls else {}))
    assert switches > 10
    assert most == 3, "its calls are open together"
    assert min(seen.values()) > 60


def test_for_what_waits_beside_calls_one_worker_drains_and_the_others_go_on() -> None:
    pool = pool_with(4)
    pool.submit([call(n) for n in range(40)])
    assert Counter(worker for worker, _ in frames(pool.plan(0.0))) == dict.fromkeys(range(4), 3)
    pool.submit([call(50, None, "of no handler")])
    for number in range(4):
        chunk = pool.workers[number].chunks[0]
        pool.report(number, report(chunk.number, times={"call": (1, 1.0)}))
        opened = [worker for worker, _ in frames(pool.plan(0.0))]
        assert opened == ([number] if number else [])
    for _ in range(2):
        chunk = pool.workers[0].chunks[0]
        pool.report(0, report(chunk.number))
        planned = frames(pool.plan(0.0))
    assert [(worker, f.seat, f.records[0][OFFSET]) for worker, f in planned] == [(0, None, 50)]
    pool.report(0, report(pool.workers[0].chunks[0].number))
    assert Counter(worker for worker, _ in frames(pool.plan(0.0))) == {0: 3}


@pytest.mark.parametrize("what", ["a suspect at its limit", "one behind its key"])
def test_what_cannot_go_keeps_no_call_waiting(what: str) -> None:
    pool = pool_with(4, others=("slow",))
    pool.limit(LimitsFound(1, None, {"slow": (1, None, None, None)}, []))
    pool.submit([call(0, b"k"), call(1, None, "slow")])
    assert {worker for worker, _ in frames(pool.plan(0.0))} == {0, 1}
    if what == "a suspect at its limit":
        pool.lanes.submit_suspect(call(2, None, "slow"), Suspect(None, (), ("lost",)))
    else:
        pool.submit([call(2, b"k", "quick")])
    pool.submit([call(n) for n in range(10, 40)])
    assert Counter(worker for worker, _ in frames(pool.plan(0.0))) == {0: 2, 2: 3, 3: 3}
    for number in (0, 2, 3):
        pool.report(number, report(pool.workers[number].chunks[-1].number))
        assert [worker for worker, _ in frames(pool.plan(0.0))] == [number]


def test_calls_go_on_where_half_of_the_workers_have_others_to_do() -> None:
    pool = pool_with(2, others=("slow",))
    pool.submit([call(n) for n in range(40)] + [call(n, None, "slow") for n in range(50, 60)])
    pool.plan(0.0)
    for _ in range(9):
        chunk = pool.workers[0].chunks[0]
        assert chunk.seat is not None
        pool.report(0, report(chunk.number, times={"call": (1, 9.0)}))
        assert [worker for worker, _ in frames(pool.plan(0.0))] == [0]


def test_a_suspect_is_charged_all_of_the_time_that_it_has_a_worker_for_itself() -> None:
    pool = pool_with(2)
    pool.costs.observe("call", 1, 6.0)
    pool.submit([call(0)])
    pool.plan(0.0)
    assert pool.workers[0].chunks[0].seconds == pytest.approx(OVERHEAD + 2.0)
    pool.report(0, report(0, unclear=[0]))
    pool.plan(0.0)
    (chunk,) = pool.workers[0].chunks + pool.workers[1].chunks
    assert chunk.suspect is not None
    assert chunk.seconds == pytest.approx(OVERHEAD + 6.0)


def test_limits_count_each_call() -> None:
    pool = pool_with(2)
    pool.limit(LimitsFound(1, None, {"call": (2, None, None, None)}, []))
    pool.submit([call(n) for n in range(5)])
    opened = frames(pool.plan(0.0))
    assert len(opened) == 2
    pool.report(opened[0][0], report(opened[0][1].number))
    assert len(frames(pool.plan(0.0))) == 1
    pool.limit(LimitsFound(2, None, {}, ["call"]))
    pool.report(opened[1][0], report(opened[1][1].number))
    assert frames(pool.plan(0.0)) == []


def test_what_comes_back_from_a_seat_is_no_call() -> None:
    """A decoder made a request of another type of it: it goes alone, in a chunk."""
    pool = pool_with(1)
    pool.submit([call(0)])
    ((_, frame),) = frames(pool.plan(0.0))
    pool.report(0, report(frame.number, returned=[0]))
    ((_, again),) = frames(pool.plan(0.0))
    assert (again.seat, again.suspect) == (None, None)


def test_a_worker_that_does_not_end_an_overdue_call_is_killed_and_only_that_call_is_to_blame() -> (
    None
):
    pool = pool_with(1)
    pool.submit([call(n) for n in range(3)])
    pool.plan(0.0)
    seats = {0: {0: Running(0, 0, 5.0, 0.0), 1: Running(1, 0, 99.0, 0.0), 2: None}}
    assert pool.tick({0: None}, 4.9, seats) == []
    assert pool.tick({0: None}, 5.0, seats) == []  # the worker ends it itself
    assert pool.tick({0: None}, 6.9, seats) == []
    kill = Signal(0, signal.SIGKILL, "timeout")
    assert pool.tick({0: None}, 7.0, seats) == [kill]
    died = pool.died(0, "SIGKILL", None, 7.1)
    assert died == [Died(0, "SIGKILL", 3, call(0))]
    verdicts = suspects(pool)
    assert {o: (s.verdict, s.crashes) for o, s in verdicts.items()} == {
        0: ("timeout", 1), 1: (None, 0), 2: (None, 0),
    }  # fmt: skip


def suspects(pool: Pool) -> dict[int, Any]:
    """What a new worker is given, one after the other."""
    found = {}
    (spawned,) = pool.plan(100.0)
    number = spawned.worker  # type: ignore[union-attr]
    pool.ready(number)
    while opened := frames(pool.plan(100.0)):
        ((_, frame),) = opened
        assert frame.seat is None, "a suspect runs by itself"
        found[frame.records[0][OFFSET]] = frame.suspect
        pool.report(number, report(frame.number))
    return found


@pytest.mark.parametrize("keys", [(None, None, None), (b"a", b"b", b"c")])
def test_of_a_death_the_call_that_the_loop_was_in_is_to_blame(
    keys: tuple[bytes | None, ...],
) -> None:
    pool = pool_with(1)
    pool.submit([call(n, key) for n, key in enumerate(keys)])
    pool.plan(0.0)
    pool.died(0, "SIGSEGV", Running(1, 0, None, 3.0), 4.0)
    found = suspects(pool)
    assert {o: s.crashes for o, s in found.items()} == {0: 0, 1: 1, 2: 0}
    assert found[1].losses == ((3.0, 4.0, "SIGSEGV"),)
    assert {s.tokens for s in found.values()} == {("i-0",), ("i-1",), ("i-2",)}


def test_nobody_is_to_blame_where_none_was_seen_unless_it_was_the_only_one() -> None:
    for count, crashes in ((2, 0), (1, 1)):
        pool = pool_with(1)
        pool.submit([call(n) for n in range(count)])
        pool.plan(0.0)
        pool.died(0, "SIGKILL", None, 4.0)
        assert {s.crashes for s in suspects(pool).values()} == {crashes}


def test_an_operator_cancels_one_call_and_its_worker_is_killed_where_it_goes_on() -> None:
    pool = pool_with(1)
    pool.submit([call(n) for n in range(3)])
    pool.plan(0.0)
    before = looks_of(pool, deadline=None)  # it waits for its claim: no reason to kill the others
    assert pool.cancel(CancelAsked("id-1", "ann: typo"), {0: None}, before, 0.0) == [
        Send(0, Cancel(1, 0, "ann: typo"))
    ]
    assert pool.tick({0: None}, 9.0, before) == []
    seats = looks_of(pool, deadline=99.0)
    assert pool.cancel(CancelAsked("id-1", "ann: typo", 7), {0: None}, seats, 1.0) == []
    assert pool.cancel(CancelAsked("id-1", "ann: typo", 1), {0: None}, seats, 1.0) == [
        Send(0, Cancel(1, 0, "ann: typo"))
    ]
    assert pool.cancel(CancelAsked("id-1", "ann: typo"), {0: None}, seats, 1.1) == []
    assert pool.cancel(CancelAsked("id-7", "ann: typo"), {0: None}, seats, 1.1) == []
    assert pool.tick({0: None}, 2.9, seats) == []
    assert pool.tick({0: None}, 3.0, seats) == [Signal(0, signal.SIGKILL, "cancelled")]
    pool.died(0, "SIGKILL", None, 3.1)
    assert suspects(pool)[1][:1] == ("cancelled",)


def test_no_worker_is_killed_for_what_was_told_to_end_before_its_call_was_open() -> None:
    """In its check, say; then it waits for a lock to be claimed, and its call is never made."""
    pool = pool_with(1)
    pool.submit([call(n) for n in range(2)])
    pool.plan(0.0)
    check = looks_of(pool, deadline=99.0)
    assert pool.cancel(CancelAsked("id-1", "ann: typo"), {0: None}, check, 0.0)
    waits = looks_of(pool, deadline=None, started=1.0)
    assert [pool.tick({0: None}, at, waits) for at in (1.0, 5.0, 50.0)] == [[], [], []]
    # Its call is open after all, and does not end.
    runs = looks_of(pool, deadline=99.0, started=51.0)
    assert [pool.tick({0: None}, at, runs) for at in (51.0, 52.9)] == [[], []]
    assert pool.tick({0: None}, 53.0, runs) == [Signal(0, signal.SIGKILL, "cancelled")]


def blocked(pool: Pool) -> SeatLooks:
    """Every open call waits for an event loop that shall have turned to it by 5.0."""
    return {
        n: {s: Running(c.number, None, 5.0, 0.0) for s, c in w.seats.taken.items()}
        for n, w in pool.workers.items()
    }


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_whose_loop_does_not_turn_to_a_call_is_killed_and_no_call_is_to_blame(
    count: int,
) -> None:
    pool = pool_with(1)
    pool.submit([call(n) for n in range(count)])
    pool.plan(0.0)
    seats = blocked(pool)
    assert [pool.tick({0: None}, at, seats) for at in (4.9, 5.0, 6.9)] == [[], [], []]
    kill = Signal(0, signal.SIGKILL, "its event loop is blocked")
    assert set(pool.tick({0: None}, 7.0, seats)) == {kill}  # type: ignore[arg-type]
    assert pool.died(0, "SIGKILL", None, 7.1) == [Died(0, "SIGKILL", count, None)]
    assert {(s.verdict, s.crashes) for s in suspects(pool).values()} == {(None, 0)}


def test_a_call_that_begins_just_before_its_worker_is_killed_for_its_loop_goes_on() -> None:
    pool = pool_with(1)
    pool.submit([call(0)])
    pool.plan(0.0)
    pool.tick({0: None}, 5.0, blocked(pool))
    begun = looks_of(pool, deadline=10.0, started=6.9)
    assert [pool.tick({0: None}, at, begun) for at in (7.0, 9.9, 10.0, 11.9)] == [[]] * 4
    assert pool.tick({0: None}, 12.0, begun) == [Signal(0, signal.SIGKILL, "timeout")]


def test_what_the_loop_is_in_is_to_blame_for_those_that_wait_for_it() -> None:
    pool = pool_with(1)
    pool.submit([call(n) for n in range(2)])
    pool.plan(0.0)
    seats = {0: {0: Running(0, 0, 300.0, 0.0), 1: blocked(pool)[0][1]}}
    pool.tick({0: None}, 5.0, seats)
    assert pool.tick({0: None}, 7.0, seats)
    pool.died(0, "SIGKILL", Running(0, 0, None, 1.0), 7.1)
    found = {o: (s.verdict, s.crashes) for o, s in suspects(pool).items()}
    assert found == {0: (None, 1), 1: (None, 0)}


@pytest.mark.parametrize("at, killed", [(1.0, 5.0), (4.0, 6.0), (5.0, 7.0)])
def test_an_operator_cancels_a_call_that_waits_for_its_loop(at: float, killed: float) -> None:
    """It never begins: others are not killed for it, but where the loop counts as blocked."""
    pool = pool_with(1)
    pool.submit([call(0)])
    pool.plan(0.0)
    seats = blocked(pool)
    pool.tick({0: None}, at, seats)
    sent = pool.cancel(CancelAsked("id-0", "ann: typo"), {0: None}, seats, at)
    assert sent == [Send(0, Cancel(0, 0, "ann: typo"))]
    assert pool.tick({0: None}, killed - 0.1, seats) == []
    assert pool.tick({0: None}, killed, seats) == [Signal(0, signal.SIGKILL, "cancelled")]
    pool.died(0, "SIGKILL", None, killed + 0.1)
    assert suspects(pool)[0].verdict == "cancelled"


def test_a_call_that_waits_for_a_blocked_loop_at_the_end_of_the_service_gets_its_verdict() -> None:
    pool = pool_with(1)
    pool.submit([call(0)])
    pool.plan(0.0)
    seats = blocked(pool)
    pool.tick({0: None}, 5.0, seats)
    pool.stop()
    pool.terminate({0: None}, 5.1)
    pool.tick({0: None}, 5.1, seats)
    pool.died(0, "SIGKILL", None, 6.0)
    assert [s.verdict for _, s in pool.take_suspects() if s is not None] == ["shutdown"]


def test_calls_that_wait_behind_one_that_takes_long_to_be_opened_come_back() -> None:
    pool = pool_with(2)
    pool.submit([call(n) for n in range(5)])
    assert Counter(worker for worker, _ in frames(pool.plan(0.0))) == {0: 3, 1: 2}
    first, second = looks_of(pool)[0], looks_of(pool)[1]
    held = {0: {0: first[0], 1: None, 2: None}, 1: second}
    looks: dict[int, Running | None] = {0: None, 1: None}
    assert pool.tick(looks, 0.0, held) == []
    assert pool.tick(looks, 0.2, held) == []
    assert pool.tick(looks, 0.3, held) == [Send(0, Recall())]
    assert pool.tick(looks, 0.4, held) == []
    for number in (1, 2):
        pool.returned(0, Returned(number, [0]))
    # They go where something moves, as far as there is room.
    ((worker, frame),) = frames(pool.plan(0.0))
    assert (worker, frame.records[0][OFFSET] in (1, 2)) == (1, True)
    assert pool.tick(looks, 9.0, held) == []
    # Its main thread is there again, and says that it has run none of the two.
    for number in (1, 2):
        pool.report(0, report(number))
    assert [worker for worker, _ in frames(pool.plan(0.0))] == [0]
    assert pool.tick(looks, 9.1, looks_of(pool)) == []


def test_who_opens_one_call_after_the_other_is_not_held_up() -> None:
    pool = pool_with(2)
    pool.submit([call(n) for n in range(6)])
    pool.plan(0.0)
    every = looks_of(pool)
    for n in range(4):
        seen = {
            w: {s: r if s < n else None for s, r in seats.items()} for w, seats in every.items()
        }
        assert pool.tick({0: None, 1: None}, n * 0.19, seen) == []
    assert pool.tick({0: None, 1: None}, 99.0, every) == []


def test_at_the_end_of_the_service_all_calls_get_its_verdict() -> None:
    pool = pool_with(1)
    pool.submit([call(n) for n in range(2)])
    pool.plan(0.0)
    pool.stop()
    pool.terminate({0: None}, 1.0)
    assert [a for a in pool.tick({0: None}, 1.0, looks_of(pool)) if isinstance(a, Signal)
            and a.number == signal.SIGKILL] == []  # fmt: skip
    pool.died(0, "SIGKILL", None, 3.1)
    held = pool.take_suspects()
    assert [s.verdict for _, s in held if s is not None] == ["shutdown", "shutdown"]


class World:
    """Random work; of every key what is submitted and what has ended, in order."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.pool = pool_with(2, most=3, others=("quick", "slow"))
        self.pool.costs.observe("slow", 1, 1.0)
        self.submitted: defaultdict[bytes, list[int]] = defaultdict(list)
        self.finished: defaultdict[bytes, list[int]] = defaultdict(list)
        self.offset = 0

    def submit(self, count: int) -> None:
        batch = []
        for _ in range(count):
            key = self.draw.choice([None, b"a", b"b", b"c"])
            kind = self.draw.choice(["call", "call", "quick", "slow"])
            batch.append(call(self.offset, key, kind))
            if key is not None:
                self.submitted[key].append(self.offset)
            self.offset += 1
        self.pool.submit(batch)

    def finish_one(self) -> None:
        """Ends the first chunk of some worker, or any of its calls; gives some back unstarted."""
        if not (busy := [w for w in self.pool.workers.values() if w.chunks]):
            return
        worker = self.draw.choice(busy)
        chunk = self.draw.choice(worker.chunks) if worker.seats.taken else worker.chunks[0]
        if chunk.seat is not None and self.draw.random() < 0.2:
            self.pool.returned(worker.number, Returned(chunk.number, [0]))
        done = [r for _, r in chunk.remaining()]
        for r in done:
            if r[KEY] is not None:
                self.finished[r[KEY]].append(r[OFFSET])
        times = {r[TYPE]: (1, 1.0) for r in done if r[TYPE] in ("slow", "call")}
        self.pool.report(worker.number, report(chunk.number, times=times))

    def check(self) -> None:
        open_keys = []
        for worker in self.pool.workers.values():
            assert len({chunk.seat is not None for chunk in worker.chunks}) <= 1
            assert len(worker.seats.taken) <= 3
            open_keys += [c.records[0][KEY] for c in worker.seats.taken.values()]
        keys = [key for key in open_keys if key is not None]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("seed", range(20))
def test_order_and_bounds_hold_whatever_happens(seed: int) -> None:
    world = World(seed)
    for step in range(3000):
        if step < 100:
            world.submit(world.draw.randrange(8))
        world.pool.plan(0.0)
        world.check()
        for _ in range(world.draw.randrange(1, 5)):
            world.finish_one()
        if step >= 100 and not world.pool.in_hand:
            break
    assert not world.pool.in_hand
    assert world.finished == world.submitted
