"""The pool's decisions, with workers that exist only on paper."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from feedback.contract.record import OFFSET, Record
from processing.ipc.channel import WrongFrame
from processing.ipc.frames import (
    Cancel,
    CancelAsked,
    ProbeDatabase,
    Recall,
    Report,
    Returned,
    RunChunk,
    Stop,
    Suspect,
)
from processing.ipc.progress import Running
from processing.pool.actions import Died, NoWorkerStarts, Send, Signal, Spawn, Tell
from processing.pool.pool import Pool
from processing.pool.pool_stats import stats_of
from processing.pool.restart_backoff import BLAMED_CAP, RestartBackoff
from processing.pool.workers import LATE
from processing.settings import PoolSettings

BACKEND = (4711, "2026-01-01 00:00:00+00")


def record(offset: int, key: bytes | None = None, kind: str = "quick") -> Record:
    return ("topic", 0, offset, 0, key, b"{}", [], kind, None)


def report(chunk: int, **fields: Any) -> Report:
    plain = Report(chunk, [], [], {}, {}, database_up=True)
    return plain._replace(**fields)


def pool_with(workers: int, *, measured: bool = True) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i"))
    if measured:
        pool.costs.observe("quick", 1, 0.0001)
        pool.costs.observe("slow", 1, 1.0)
    for action in pool.plan(0.0):
        assert isinstance(action, Spawn)
        pool.crew.connected(action.worker, BACKEND)
        pool.ready(action.worker)
    return pool


def sends(actions: list[Any]) -> list[tuple[int, list[int]]]:
    """Who gets which offsets."""
    return [
        (a.worker, [r[OFFSET] for r in a.frame.records])
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def running(chunk: int, index: int | None = 0, **fields: Any) -> Running:
    return Running(chunk, index, fields.get("deadline"), fields.get("started", 0.0))


def test_starts_as_many_workers_as_wanted_and_replaces_one_that_left() -> None:
    pool = Pool(PoolSettings(workers=2))
    assert pool.plan(0.0) == [Spawn(0), Spawn(1)]
    assert pool.plan(0.0) == []
    pool.crew.connected(0, BACKEND)
    pool.ready(0)
    pool.crew.leave(0)
    assert pool.plan(0.1) == [Spawn(2)]
    assert pool.died(0, "exit code 0", None, 0.2) == []
    assert pool.plan(0.3) == []


def test_free_workers_share_what_waits() -> None:
    pool = pool_with(2)
    pool.submit([record(n) for n in range(5)])
    assert sends(pool.plan(1.0)) == [(0, [0, 1, 2]), (1, [3, 4])]
    assert pool.in_hand == 5


def test_a_busy_worker_gets_a_second_chunk_only_of_a_good_size() -> None:
    pool = pool_with(1)
    pool.submit([record(n) for n in range(10)])
    pool.plan(1.0)
    pool.submit([record(n) for n in range(10, 20)])
    assert sends(pool.plan(1.1)) == []
    pool.submit([record(n) for n in range(20, 400)])
    assert [len(o) for _, o in sends(pool.plan(1.2))] == [390]
    pool.submit([record(n) for n in range(400, 900)])
    assert sends(pool.plan(1.3)) == []


def test_nothing_is_sent_behind_a_request_that_goes_alone() -> None:
    pool = pool_with(1)
    pool.submit([record(0, None, "slow")])
    pool.plan(1.0)
    pool.submit([record(n) for n in range(1, 300)])
    assert sends(pool.plan(1.1)) == []


def test_reports_free_what_was_in_hand_and_teach_the_costs() -> None:
    pool = pool_with(1, measured=False)
    pool.submit([record(0), record(1)])
    assert sends(pool.plan(1.0)) == [(0, [0])]
    counts = {("quick", "done", "ok"): 1}
    pool.report(0, report(0, times={"quick": (1, 0.001)}, counts=counts))
    assert pool.in_hand == 1
    assert pool.in_hand_bytes > 0
    assert dict(pool.totals.counts) == counts
    assert pool.costs.of("quick") == pytest.approx(0.001)
    pool.plan(1.1)
    pool.report(0, report(1))
    assert (pool.in_hand, pool.in_hand_bytes) == (0, 0)


def test_a_report_for_another_chunk_than_the_first_is_refused() -> None:
    pool = pool_with(1)
    pool.submit([record(0)])
    pool.plan(1.0)
    with pytest.raises(WrongFrame, match="not its first"):
        pool.report(0, report(99))


def test_recalled_records_run_in_another_worker() -> None:
    pool = pool_with(2)
    pool.submit([record(n, b"a") for n in range(3)] + [record(3, b"b")])
    assert sends(pool.plan(1.0)) == [(0, [0, 1]), (1, [3])]
    pool.report(1, report(1))
    pool.submit([record(4, b"c"), record(5, b"d")])
    assert sends(pool.plan(1.1)) == [(1, [4, 5])]
    pool.returned(1, Returned(2, [1]))
    pool.report(1, report(2, returned=[1]))
    assert sends(pool.plan(1.2)) == [(1, [5])]
    assert pool.in_hand == 4


def test_a_late_request_has_what_waits_behind_it_called_back_once() -> None:
    pool = pool_with(2)
    pool.submit([record(n) for n in range(10)])
    pool.plan(1.0)
    looks = {0: running(0, started=1.0), 1: None}
    assert pool.tick(looks, 1.1) == []
    assert pool.tick(looks, 1.3) == [Send(0, Recall())]
    assert pool.tick(looks, 1.4) == []
    pool.submit([record(n) for n in range(10, 600)])
    assert 0 not in [worker for worker, _ in sends(pool.plan(1.5))]


def test_an_overdue_request_is_asked_to_stop_then_killed_and_its_verdict_is_timeout() -> None:
    pool = pool_with(1)
    pool.submit([record(0, b"a"), record(1, b"b"), record(2, b"c")])
    pool.plan(1.0)
    late = running(0, 1, deadline=2.0, started=1.0)
    assert pool.tick({0: late}, 1.9) == []
    assert pool.tick({0: late}, 2.0) == [Signal(0, signal.SIGTERM, "timeout")]
    assert pool.tick({0: late}, 3.0) == []
    assert pool.tick({0: late}, 4.0) == [Signal(0, signal.SIGKILL, "timeout")]
    died = pool.died(0, "signal SIGKILL", late, 4.1)
    assert isinstance(died[0], Died)
    assert died[0].culprit is not None
    assert died[0].culprit[OFFSET] == 1
    verdicts = {}
    for spawned in pool.plan(5.0):
        assert isinstance(spawned, Spawn)
        pool.crew.connected(spawned.worker, (1, "new"))
        pool.ready(spawned.worker)
        while frames := [a.frame for a in pool.plan(5.0) if isinstance(a, Send)]:
            number, _, records, suspect, *_ = frames[0]
            assert len(records) == 1
            verdicts[records[0][OFFSET]] = suspect._replace(losses=())
            pool.report(spawned.worker, report(number))
    assert verdicts == {
        0: Suspect(None, (BACKEND,), ("i-0",), 0),
        1: Suspect("timeout", (BACKEND,), ("i-0",), 1),
        2: Suspect(None, (BACKEND,), ("i-0",), 0),
    }
    assert pool.in_hand == 0


def named(offset: int) -> Record:
    return ("topic", 0, offset, 0, None, b"{}", [("ce_id", b"r%d" % offset)], "quick", None)


def cancel(pool: Pool, name: str, look: Running | None, now: float, *chunk: int) -> list[Any]:
    return pool.crew.cancel(CancelAsked(name, "by ann", *chunk), {0: look}, now)


def test_a_cancelled_request_is_told_then_killed_and_its_verdict_says_who() -> None:
    pool = pool_with(1)
    pool.submit([named(0), named(1), named(2)])
    pool.plan(1.0)
    look = running(0, 1, deadline=60.0, started=1.0)
    assert cancel(pool, "r0", look, 2.0) == cancel(pool, "r1", look, 2.0, 7) == [], "neither runs"
    assert cancel(pool, "r1", look, 2.0, 0) == [Send(0, Cancel(0, 1, "by ann"))]
    assert cancel(pool, "r1", look, 2.5) == [], "it was told"
    assert pool.tick({0: look}, 3.9) == []
    (kill,) = pool.tick({0: look}, 4.0)
    assert kill == Signal(0, signal.SIGKILL, "cancelled")
    assert isinstance(kill, Signal)
    assert kill.meant == look
    pool.died(0, "signal SIGKILL", look, 4.1)
    assert {h.record[OFFSET]: h.suspect for h in pool.lanes.take_suspects()} == {
        0: Suspect(None, (BACKEND,), ("i-0",), 0),
        1: Suspect("cancelled", (BACKEND,), ("i-0",), 1, "by ann", ((1.0, 4.1, "signal SIGKILL"),)),
        2: Suspect(None, (BACKEND,), ("i-0",), 0),
    }


def test_what_runs_when_the_cancelled_one_has_just_ended_is_not_killed_nor_blamed() -> None:
    pool = pool_with(1)
    pool.submit([named(0), named(1)])
    pool.plan(1.0)
    look, following = running(0, 0, started=1.0), running(0, 1, started=3.5)
    cancel(pool, "r0", look, 2.0)
    assert pool.tick({0: following}, 4.0) == []
    assert cancel(pool, "r1", following, 4.0) != []
    assert cancel(pool, "r0", look, 5.0) != []
    assert pool.tick({0: look}, 7.0) != []
    # It ended between the look and the signal: the next one is only run again.
    pool.died(0, "signal SIGKILL", following, 7.1)
    assert {h.suspect.crashes for h in pool.lanes.take_suspects() if h.suspect} == {0}


def test_a_request_that_heeds_the_signal_is_not_killed() -> None:
    pool = pool_with(1)
    pool.submit([record(0), record(1)])
    pool.plan(1.0)
    pool.tick({0: running(0, 0, deadline=2.0)}, 2.0)
    nxt = running(0, 1, deadline=9.0, started=3.0)
    assert pool.tick({0: nxt}, 9.0 - 1.0) == []
    assert pool.tick({0: nxt}, 9.0) == [Signal(0, signal.SIGTERM, "timeout")]


def kill_and_restart(pool: Pool, now: float, look: Running | None) -> Suspect | None:
    """The only worker dies; returns the suspect of the next chunk that its successor gets.

    Without when its starts began and ended.
    """
    (number,) = pool.workers
    pool.died(number, "signal SIGSEGV", look, now)
    (spawn,) = pool.plan(now + 100)
    assert isinstance(spawn, Spawn)
    pool.crew.connected(spawn.worker, BACKEND)
    pool.ready(spawn.worker)
    (send,) = pool.plan(now + 100)
    assert isinstance(send, Send)
    assert isinstance(send.frame, RunChunk)
    suspect = send.frame.suspect
    return suspect if suspect is None else suspect._replace(losses=())


def test_a_request_that_kills_two_workers_is_dead() -> None:
    pool = pool_with(1)
    pool.submit([record(0, b"a")])
    pool.plan(1.0)
    assert kill_and_restart(pool, 1.0, running(0)) == Suspect(None, (BACKEND,), ("i-0",), 1)
    assert kill_and_restart(pool, 200.0, running(1)) == Suspect(
        "worker_died",
        (BACKEND,),
        ("i-0", "i-1"),
        2,
    )
    # The worker that stores the verdict dies too: the verdict stays.
    assert kill_and_restart(pool, 400.0, None) == Suspect(
        "worker_died",
        (BACKEND,),
        ("i-0", "i-1", "i-2"),
        3,
    )


def test_a_death_while_no_request_runs_blames_nobody() -> None:
    pool = pool_with(1)
    pool.submit([record(0, b"a"), record(1, b"b")])
    pool.plan(1.0)
    for crash in range(2):
        suspect = kill_and_restart(pool, 1.0 + 200 * crash, None)
        assert suspect is not None
        assert suspect[0] is None


def test_a_request_that_always_dies_in_its_commit_is_counted_once_it_is_alone() -> None:
    pool = pool_with(1)
    pool.submit([record(0, b"a")])
    pool.plan(1.0)
    kill_and_restart(pool, 1.0, None)
    assert kill_and_restart(pool, 200.0, None) == Suspect(
        "worker_died", (BACKEND,), ("i-0", "i-1"), 2
    )


def test_a_chunk_that_the_dead_worker_had_not_begun_is_not_suspect() -> None:
    pool = pool_with(1)
    pool.submit([record(n) for n in range(700)])
    assert [len(o) for _, o in sends(pool.plan(1.0))] == [500, 200]
    died = pool.died(0, "signal SIGKILL", running(0, 3), 1.0)
    assert isinstance(died[0], Died)
    assert died[0].suspects == 500


def test_an_unclear_commit_makes_a_suspect_of_the_old_backend() -> None:
    pool = pool_with(1)
    pool.submit([record(0), record(1)])
    pool.plan(1.0)
    lost = report(0, unclear=[1], database_up=False)
    assert pool.report(0, lost) == [Tell(ProbeDatabase())]
    assert pool.in_hand == 1
    assert pool.plan(1.1) == []
    assert pool.take_unstarted() == []
    pool.database(up=True)
    (send,) = pool.plan(1.2)
    assert isinstance(send, Send)
    assert send.frame.suspect == Suspect(None, (BACKEND,), ("i-0",), 0)


def test_each_backend_that_the_worker_had_meanwhile_may_be_at_work() -> None:
    pool = pool_with(1)
    pool.submit([record(n) for n in range(700)])
    pool.plan(1.0)
    second, third = (4712, "later"), (4713, "later")
    pool.crew.connected(0, second)
    pool.report(0, report(0, unclear=[0]))
    pool.crew.connected(0, third)
    pool.died(0, "signal SIGKILL", running(1, 0), 2.0)
    suspects = {r[OFFSET]: s for r, s in pool.take_suspects() if s is not None}
    assert suspects[0].backends == (BACKEND,), "the second was the living worker's own"
    assert suspects[500].backends == (second, third), "the first chunk's were gone by then"


def test_a_suspect_that_could_not_be_looked_up_stays_one() -> None:
    pool = pool_with(1)
    pool.submit([record(0)])
    pool.plan(1.0)
    kill_and_restart(pool, 1.0, running(0))
    (number,) = pool.workers
    pool.report(number, report(1, returned=[0], database_up=False))
    pool.database(up=True)
    (send,) = pool.plan(200.0)
    assert isinstance(send, Send)
    loss = (0.0, 1.0, "signal SIGSEGV")
    assert send.frame.suspect == Suspect(None, (BACKEND,), ("i-0",), 1, losses=(loss,))


def test_while_the_database_is_away_the_rest_can_be_given_up() -> None:
    pool = pool_with(1)
    pool.submit([record(n) for n in range(3)])
    pool.database(up=False)
    assert pool.plan(1.0) == []
    assert [r[OFFSET] for r in pool.take_unstarted()] == [0, 1, 2]
    assert (pool.in_hand, pool.in_hand_bytes) == (0, 0)


def test_stop_sends_nothing_new_and_terminate_gives_the_verdict_shutdown() -> None:
    pool = pool_with(2)
    pool.submit([record(0), record(1)])
    pool.plan(1.0)
    assert pool.stop() == [Send(0, Stop()), Send(1, Stop())]
    assert pool.stop() == []
    pool.submit([record(2)])
    assert pool.plan(1.0) == []
    look = running(0, 0)
    assert pool.terminate({0: look}, 2.0) == [
        Signal(0, signal.SIGTERM, "shutdown"),
        Signal(1, signal.SIGTERM, "shutdown"),
    ]
    pool.died(0, "signal SIGKILL", look, 3.0)
    assert len(pool.lanes) == 2


def test_a_worker_that_does_not_start_is_killed_and_many_of_them_are_fatal() -> None:
    pool = Pool(PoolSettings(workers=1, start_timeout=10.0))
    now = 0.0
    for _ in range(5):
        (spawn,) = pool.plan(now)
        assert isinstance(spawn, Spawn)
        assert pool.tick({}, now + 9.0) == []
        kill = Signal(spawn.worker, signal.SIGKILL, "did not start within 10 s")
        assert pool.tick({}, now + 11.0) == [kill]
        pool.died(spawn.worker, "signal SIGKILL", None, now + 11.0)
        now += 100.0
    assert pool.plan(now) == [NoWorkerStarts("5 " + LATE.format(10.0))]


def respawn_delays(pool: Pool, deaths: int, requests: int) -> list[float]:
    """Seconds until the next worker after each death with so many requests in hand."""
    now, delays = 1.0, []
    for death in range(deaths):
        pool.submit([record(death * requests + n) for n in range(requests)])
        pool.plan(now)
        (number,) = pool.workers
        pool.died(number, "signal SIGSEGV", None, now)
        died_at = now
        while not (spawned := [a for a in pool.plan(now) if isinstance(a, Spawn)]):
            now += 0.25
        delays.append(now - died_at)
        pool.crew.connected(spawned[0].worker, BACKEND)
        pool.ready(spawned[0].worker)
    return delays


def test_respawns_slow_down_while_workers_die_one_after_the_other() -> None:
    assert respawn_delays(pool_with(1), 6, requests=0) == [0, 0, 0, 0.5, 1.0, 2.0]


def test_requests_that_kill_their_workers_do_not_hold_up_the_others_for_long() -> None:
    respawn = RestartBackoff("died")
    delays = []
    for death in range(8):
        respawn.died(float(death), blamed=True)
        delays.append(next(n / 4 for n in range(99) if respawn.may(death + n / 4)))
    assert delays == [0, 0, 0, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert max(respawn_delays(pool_with(1), 5, requests=1)) <= BLAMED_CAP
    assert respawn_delays(pool_with(1), 8, requests=0)[-2:] == [4.0, 8.0]


def test_resize_lets_the_last_ones_go_and_starts_the_missing() -> None:
    pool = pool_with(2)
    assert pool.resize(1) == [Send(1, Stop())]
    pool.died(1, "exit code 0", None, 1.0)
    assert pool.plan(1.0) == []
    pool.resize(3)
    assert len(pool.plan(1.0)) == 2


def test_stats_count_each_record_once() -> None:
    pool = pool_with(2)
    pool.submit([record(n, b"a") for n in range(4)])
    pool.plan(1.0)
    stats = stats_of(pool)
    assert (stats.workers, stats.workers_free, stats.queued, stats.running) == (2, 1, 2, 2)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_record_ends_once(seed: int) -> None:  # noqa: C901 - a simulator
    """Random arrivals, reports, recalls, deaths and outages; then the pool drains."""
    rng = random.Random(seed)
    pool = pool_with(3, measured=False)
    now, offset = 1.0, 0
    ended: list[Record] = []
    crashed: dict[int, int] = {}

    def finish(number: int) -> None:
        chunk = pool.workers[number].chunks[0]
        left = dict(chunk.remaining())
        up = rng.random() > 0.05
        unclear = [] if up else [i for i in left if rng.random() < 0.3]
        ended.extend(r for i, r in left.items() if i not in unclear)
        times = {"new": (1, 0.001)}
        pool.report(number, report(chunk.number, unclear=unclear, database_up=up, times=times))

    def die(number: int) -> None:
        chunks = pool.workers[number].chunks
        look = None
        if chunks and rng.random() < 0.7 and (left := dict(chunks[0].remaining())):
            index = rng.choice(list(left))
            look = running(chunks[0].number, index)
            crashed[left[index][OFFSET]] = crashed.get(left[index][OFFSET], 0) + 1
        pool.died(number, "signal SIGKILL", look, now)

    def recall(number: int) -> None:
        for chunk in reversed(pool.workers[number].chunks):
            left = [i for i, _ in chunk.remaining()]
            pool.returned(number, Returned(chunk.number, left[1:]))

    for step in range(600):
        now += 5.0
        if step < 400 and rng.random() < 0.3:
            new = [record(offset + n, rng.choice([None, b"a", b"b"]), "new") for n in range(30)]
            offset += 30
            pool.submit(new)
        busy = [n for n, w in pool.workers.items() if w.chunks]
        event = rng.random()
        if busy and event < 0.7:
            finish(rng.choice(busy))
        elif busy and event < 0.75 and step < 400:
            die(rng.choice(busy))
        elif busy and event < 0.85:
            recall(rng.choice(busy))
        elif rng.random() < 0.5:
            pool.database(up=True)
        for action in pool.plan(now):
            if isinstance(action, Spawn):
                pool.crew.connected(action.worker, BACKEND)
                pool.ready(action.worker)
    pool.database(up=True)
    while pool.in_hand:
        for number in [n for n, w in pool.workers.items() if w.chunks]:
            finish(number)
        pool.database(up=True)
        pool.plan(now)
    assert sorted(r[OFFSET] for r in ended) == list(range(offset))
    assert (pool.in_hand, pool.in_hand_bytes) == (0, 0)
