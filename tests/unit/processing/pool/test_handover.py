"""What waits for the database keeps its order, as what runs does."""

from __future__ import annotations

import selectors

from feedback.contract.states import DATABASE_UNAVAILABLE, SHUTDOWN
from processing.ipc.frames import Report, RunChunk
from processing.logs import get_logger
from processing.pool.actions import Send, Spawn
from processing.pool.handover import Handover
from processing.pool.maintenance_link import MaintenanceLink
from processing.pool.pool import Pool
from processing.settings import PoolSettings
from tests.support.lanes import record


def test_what_is_kept_for_the_database_is_given_up_with_its_partition() -> None:
    """Its next owner reads it: it must not become a dead letter here besides."""
    pool = Pool(PoolSettings(workers=1, instance="i"))
    log = get_logger("test")
    with selectors.DefaultSelector() as selector:
        link = MaintenanceLink({}, selector, log)
        link.decoded = ["topic"]
        handover = Handover(pool, link, log)
        pool.submit([record(n) for n in range(4)])
        pool.database(up=False)
        handover.refuse_unstarted(DATABASE_UNAVAILABLE)
        assert handover.take_departed() == ([], [])
        pool.let_go({("other", 0): 0})
        assert handover.take_departed() == ([], [])
        pool.let_go({("topic", 0): 1})
        assert [r[2] for r in handover.take_departed()[1]] == [1, 2, 3]
        assert [r[2] for r in handover.records] == [0]
        assert handover.take_departed() == ([], [])


def test_what_only_user_code_can_read_runs_in_order_once_the_database_is_back() -> None:
    pool = Pool(PoolSettings(workers=1, instance="i"))
    log = get_logger("test")
    with selectors.DefaultSelector() as selector:
        link = MaintenanceLink({}, selector, log)  # no process: nothing is refused here
        link.decoded = ["topic"]
        handover = Handover(pool, link, log)
        for action in pool.plan(0.0):
            assert isinstance(action, Spawn)
            pool.ready(action.worker)
        pool.submit([record(0, b"k")])
        [sent] = pool.plan(0.0)
        assert isinstance(sent, Send)
        pool.submit([record(1, b"k"), record(2, b"k")])
        # The database goes while the first one runs, which finds that out at its COMMIT.
        pool.database(up=False)
        handover.refuse_unstarted(DATABASE_UNAVAILABLE)
        pool.report(sent.worker, Report(0, [0], [], {}, {}, database_up=False))
        handover.refuse_unstarted(DATABASE_UNAVAILABLE)
        assert (handover.count, pool.in_hand) == (3, 0)
        handover.database_back()
        assert [r[2] for r in pool.take_unstarted()] == [0, 1, 2]


def test_what_is_committed_as_the_outage_ends_comes_behind_what_was_kept() -> None:
    pool = Pool(PoolSettings(workers=1, instance="i"))
    with selectors.DefaultSelector() as selector:
        link = MaintenanceLink({}, selector, get_logger("test"))
        link.decoded = ["topic"]
        handover = Handover(pool, link, get_logger("test"))
        for action in pool.plan(0.0):
            assert isinstance(action, Spawn)
            pool.ready(action.worker)
        pool.costs.observe("quick", 1, 0.0001)
        pool.submit([record(0, b"k"), record(1, b"l")])
        pool.database(up=False)
        handover.refuse_unstarted(DATABASE_UNAVAILABLE)
        # The answer to its commit and the news of the database come in one turn.
        pool.submit([record(2, b"k")])
        handover.database_back()
        pool.database(up=True)
        [sent] = pool.plan(1.0)
        assert isinstance(sent, Send)
        assert isinstance(sent.frame, RunChunk)
        assert [r[2] for r in sent.frame.records] == [0, 1, 2]
        assert (handover.count, pool.in_hand) == (0, 3)


def test_at_a_stop_what_was_told_to_others_is_theirs_and_the_rest_is_parked() -> None:
    """Started and killed, or come back unstarted: whatever the low mark told is not parked here."""
    pool = Pool(PoolSettings(workers=1, instance="i"))
    log = get_logger("test")
    with selectors.DefaultSelector() as selector:
        link = MaintenanceLink({}, selector, log)
        handover = Handover(pool, link, log)
        for action in pool.plan(0.0):
            assert isinstance(action, Spawn)
            pool.ready(action.worker)
        pool.submit([record(n, b"k") for n in range(4)])
        [sent] = pool.plan(0.0)
        assert isinstance(sent, Send)
        pool.let_go({("topic", 0): 1})
        pool.let_go({})
        pool.stop()
        pool.died(sent.worker, "signal SIGKILL", None, 1.0)
        handover.refuse_unstarted(SHUTDOWN)
        assert [r[2] for r in link.unanswered] == [0], "below the mark: nobody else reads it"
        assert [r[2] for r in handover.take_departed()[1]] == [1, 2, 3]
        assert pool.in_hand == 0
