"""At a stop what has not started waits in the journal, unless others were told of it."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from contextlib import contextmanager

from feedback.contract.states import PARKED, SHUTDOWN
from processing.ipc.frames import Park
from processing.logs import get_logger
from processing.pool.handover import Handover
from processing.pool.maintenance_link import MaintenanceLink
from processing.pool.pool import Pool
from processing.settings import PoolSettings
from tests.support.lanes import record


@contextmanager
def stopped() -> Iterator[tuple[Pool, MaintenanceLink, Handover]]:
    """Three records that no worker has, while the pool stops."""
    pool = Pool(PoolSettings(workers=1, instance="i"))
    log = get_logger("test")
    with selectors.DefaultSelector() as selector:
        link = MaintenanceLink({}, selector, log)
        pool.submit([record(n, b"k") for n in range(3)])
        pool.stop()
        yield pool, link, Handover(pool, link, log)


def parked(link: MaintenanceLink) -> list[int]:
    """Offsets of what is handed over to be parked: without workers nothing of it was begun."""
    frames = [part.frame for part in link._parts.values()]
    assert all(isinstance(frame, Park) and frame.code == PARKED for frame in frames)
    assert not any(frame.starts for frame in frames if isinstance(frame, Park))
    return [one[2] for frame in frames for one in frame.records]


def test_what_no_worker_had_is_parked() -> None:
    with stopped() as (pool, link, handover):
        handover.refuse_unstarted(SHUTDOWN)
        assert parked(link) == [0, 1, 2]
        assert handover.take_departed() == ([], [])
        assert (pool.in_hand, handover.count) == (0, 3)


def test_but_for_what_the_next_owner_of_its_partition_was_told_of() -> None:
    with stopped() as (pool, link, handover):
        pool.let_go({("topic", 0): 1})
        handover.refuse_unstarted(SHUTDOWN)
        assert parked(link) == [0]
        assert [one[2] for one in handover.take_departed()[1]] == [1, 2]
        assert (pool.in_hand, handover.count) == (0, 1)
