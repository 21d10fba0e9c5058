"""Workers that are replaced, that lose their connection, or that shall give up."""

from __future__ import annotations

import signal

from feedback.contract.record import Record
from processing.ipc.frames import LimitsFound, Report, RunChunk, Stop
from processing.pool.actions import Action, Send, Signal, Spawn
from processing.pool.pool import Pool
from processing.pool.pool_stats import stats_of
from processing.settings import PoolSettings


def record(offset: int) -> Record:
    return ("topic", 0, offset, 0, None, b"{}", [], "quick", None)


def pool_with(workers: int) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i"))
    pool.costs.observe("quick", 1, 0.0001)
    for action in pool.plan(0.0):
        assert isinstance(action, Spawn)
        pool.ready(action.worker)
    return pool


def takers(actions: list[Action]) -> list[int]:
    """Workers that get a chunk."""
    return [a.worker for a in actions if isinstance(a, Send) and isinstance(a.frame, RunChunk)]


def test_workers_are_asked_to_give_up_again_until_they_do() -> None:
    pool = pool_with(1)
    pool.terminate({}, 2.0)
    assert pool.tick({}, 2.1) == []
    assert pool.tick({}, 2.3) == [Signal(0, signal.SIGTERM, "shutdown", again=True)]
    assert pool.tick({}, 2.4) == []


def test_no_crash_is_counted_of_who_is_killed_in_its_commit_at_the_end_of_the_service() -> None:
    pool = pool_with(1)
    pool.submit([record(0)])
    assert takers(pool.plan(1.0)) == [0]
    pool.terminate({}, 2.0)
    pool.tick({}, 2.1)
    pool.died(0, "signal SIGKILL", None, 3.0)
    ((_, suspect),) = pool.take_suspects()
    assert suspect.verdict == "shutdown"
    assert pool.crew.deaths == {"shutdown": 1}


def test_what_is_sent_after_records_came_back_says_so() -> None:
    """By this a worker tells it from what was sent before, which it gives back."""
    pool = pool_with(1)
    pool.submit([record(0), record(1)])
    (first,) = [a.frame for a in pool.plan(1.0) if isinstance(a, Send)]
    assert isinstance(first, RunChunk)
    unclear = Report(first.number, [], [0, 1], {}, {}, database_up=True)
    pool.report(0, unclear)
    second = next(a.frame for a in pool.plan(2.0) if isinstance(a, Send))
    assert isinstance(second, RunChunk)
    assert (first.returns, second.returns) == (0, 1)


def test_workers_that_want_to_be_replaced_are_so_one_at_a_time() -> None:
    pool = pool_with(3)
    pool.submit([record(0), record(1), record(2)])
    for number in takers(pool.plan(1.0)):
        report = Report(number, [], [], {}, {}, database_up=True)
        pool.report(number, report._replace(leaving="requests"))
    assert pool.plan(2.0) == [Spawn(3)]
    assert pool.ready(3) == [Send(0, Stop())]
    assert pool.plan(3.0) == [], "the first one that was replaced has not ended"
    pool.died(0, "exit code 0", None, 3.5)
    assert pool.plan(4.0) == [Spawn(4)]


def start(pool: Pool, now: float) -> None:
    """Plans, and starts well whoever comes, until nobody does."""
    while spawned := [a.worker for a in pool.plan(now) if isinstance(a, Spawn)]:
        for number in spawned:
            pool.ready(number)


def test_other_numbers_of_workers_pile_up_none_while_requests_take_long() -> None:
    pool = pool_with(4)
    pool.submit([record(n) for n in range(100)])
    for version in range(12):
        pool.resize((2, 4)[version % 2])
        start(pool, 1.0 + version)
        assert len(pool.workers) <= 4 + 1
    assert len(pool.crew.serving) == 2, "three that leave still run"
    for number in [w.number for w in pool.workers.values() if w.leaving]:
        pool.died(number, "exit code 0", None, 20.0)
    start(pool, 30.0)
    assert len(pool.crew.serving) == 4


def test_workers_that_are_replaced_one_after_the_other_pile_up_none() -> None:
    pool = pool_with(2)
    for turn in range(6):
        pool.crew.retire(pool.crew.serving[0].number)
        start(pool, 1.0 + turn)
        assert len(pool.workers) <= 2 + 1
        assert len(pool.crew.serving) >= 2


def test_where_all_others_leave_another_one_comes_at_once() -> None:
    pool = pool_with(8)
    pool.resize(1)
    pool.died(0, "signal SIGKILL", None, 1.0)
    assert pool.plan(2.0) == [Spawn(8)]
    assert pool.plan(2.0) == []


def test_a_replaced_worker_that_does_not_end_is_killed_after_a_while() -> None:
    pool = pool_with(2)
    pool.submit([record(0)])
    (number,) = takers(pool.plan(1.0))
    pool.limit(LimitsFound(1, 1, {}, []))
    leaving = next(w for w in pool.workers.values() if w.leaving)
    assert pool.tick({}, 2.0) == []
    if leaving.chunks:
        pool.report(number, Report(0, [], [], {}, {}, database_up=True))
        assert pool.tick({}, 2.5) == []
    assert pool.tick({}, 60.0) == []
    assert pool.tick({}, 62.6) == [Signal(leaving.number, signal.SIGKILL, "did not stop in time")]
    assert pool.tick({}, 63.0) == []
    assert pool.died(leaving.number, "signal SIGKILL", None, 63.1) == []


def test_at_the_end_of_the_service_the_grace_says_how_long_workers_may_take() -> None:
    pool = pool_with(1)
    pool.stop()
    assert pool.tick({}, 2.0) == pool.tick({}, 500.0) == []


def test_who_still_loads_the_app_is_ended_at_once_when_the_service_ends() -> None:
    pool = pool_with(1)
    pool.resize(2)
    assert pool.plan(1.0) == [Spawn(1)]
    assert pool.stop() == [Send(0, Stop()), Send(1, Stop()), Signal(1, signal.SIGTERM, "shutdown")]


def test_a_lost_connection_holds_up_its_own_worker_alone() -> None:
    pool = pool_with(2)
    pool.submit([record(0)])
    (number,) = takers(pool.plan(1.0))
    pool.report(number, Report(0, [], [0], {}, {}, database_up=False))
    pool.submit([record(1), record(2)])
    assert pool.database_up
    assert set(takers(pool.plan(2.0))) == {1 - number}


def test_workers_are_cut_off_while_none_of_them_reaches_the_database_for_what_is_in_hand() -> None:
    """Whatever the maintenance process says, whose own session may stand."""
    pool = pool_with(2)
    pool.submit([record(0), record(1)])
    for n, number in enumerate(takers(pool.plan(1.0))):
        assert not stats_of(pool).cut_off
        pool.report(number, Report(n, [0], [], {}, {}, database_up=False))
    assert stats_of(pool).cut_off
    pool.database(up=True)
    assert stats_of(pool).cut_off
    first, second = (a.frame for a in pool.plan(2.0) if isinstance(a, Send))
    assert isinstance(first, RunChunk)
    assert isinstance(second, RunChunk)
    pool.crew.connected(0, (1, "now"))  # as each worker says before it does anything there
    pool.report(0, Report(first.number, [], [], {}, {}, database_up=True))
    assert not stats_of(pool).cut_off
    pool.crew.connected(1, (2, "now"))
    pool.report(1, Report(second.number, [], [], {}, {}, database_up=True))
    assert not any(worker.cut_off for worker in pool.workers.values())


def test_a_worker_that_has_a_connection_again_is_not_cut_off_however_long_it_runs() -> None:
    pool = pool_with(1)
    pool.submit([record(0)])
    pool.plan(1.0)
    pool.report(0, Report(0, [0], [], {}, {}, database_up=False))
    pool.database(up=True)
    pool.plan(2.0)
    assert stats_of(pool).cut_off
    pool.crew.connected(0, (1, "now"))
    assert not stats_of(pool).cut_off


def test_a_server_that_lets_nobody_new_in_is_away_once_no_worker_has_a_session() -> None:
    pool = pool_with(2)
    pool.database(up=False, turned_away=True)
    assert not pool.database_up, "none has connected yet"
    pool.crew.connected(0, (1, "then"))
    pool.crew.connected(1, (2, "then"))
    assert pool.database_up
    pool.submit([record(0), record(1)])
    first, second = takers(pool.plan(1.0))
    pool.report(first, Report(0, [0], [], {}, {}, database_up=False))
    assert pool.database_up
    pool.report(second, Report(1, [0], [], {}, {}, database_up=False))
    assert not pool.database_up
    pool.database(up=False, turned_away=True)
    assert not pool.database_up
    assert takers(pool.plan(2.0)) == []
    pool.database(up=True)
    assert len(takers(pool.plan(3.0))) == 2


def test_a_worker_tries_for_itself_where_nobody_looks_whether_the_database_is_there() -> None:
    """As where no maintenance process can start."""
    pool = pool_with(1)
    pool.submit([record(0)])
    pool.plan(1.0)
    for n, now in enumerate((10.0, 20.0)):
        pool.report(0, Report(n, [0], [], {}, {}, database_up=False))
        pool.tick({}, now)
        assert takers(pool.plan(now + 4.9)) == []
        pool.tick({}, now + 4.9)
        assert takers(pool.plan(now + 4.9)) == []
        pool.tick({}, now + 5.0)
        assert takers(pool.plan(now + 5.0)) == [0]


def test_workers_that_have_nothing_to_do_are_cut_off_until_one_connects() -> None:
    pool = pool_with(1)
    pool.submit([record(0)])
    pool.plan(1.0)
    pool.report(0, Report(0, [0], [], {}, {}, database_up=False))
    assert stats_of(pool).cut_off
    pool.take_unstarted()
    assert stats_of(pool).cut_off
    pool.crew.connected(0, (1, "now"))
    assert not stats_of(pool).cut_off
