"""The pool as it stands, for whoever shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from processing.pool.backlog import Backlog, backlogs_of
from processing.pool.pool import Pool
from processing.pool.stats import PoolStats
from processing.pool.worker_state import CHUNKS_IN_FLIGHT


def stats_of(pool: Pool) -> PoolStats:
    """A frozen look at a pool."""
    serving, caps, lanes = pool.crew.serving, pool.caps, pool.lanes
    # Where none can start others would wait for what is kept here, for hours perhaps.
    in_use = {} if pool.crew.none_starts else lanes.in_use
    if pool.crew.none_starts or pool.crew.cut_off:
        present: Mapping[str, int] = {}
    else:
        present = in_use if pool.queue.standstill.holds else lanes.present
    return PoolStats(
        workers=len(serving),
        workers_free=sum(not w.chunks for w in serving),
        queued=len(lanes),
        running=sum(len(c.records) - len(c.gone) for w in serving for c in w.chunks),
        in_hand=pool.in_hand,
        deaths=sum(pool.crew.deaths.values()),
        database_up=pool.database_up,
        cut_off=pool.crew.cut_off,
        workers_wanted=pool.crew.wanted,
        at_once=caps.at_once(in_use),
        needs=caps.needs(present, pool.costs, pool.crew.wanted),
        limits_number=caps.number,
        worker_states=pool.crew.states,
        deaths_by_cause=dict(pool.crew.deaths),
    )


def backlogs_in(pool: Pool) -> dict[tuple[str, int], Backlog]:
    """What is held back by partition, and how long that is expected to take. Looks at each."""
    lanes = pool.lanes
    return backlogs_of(lanes.held_back_records(), pool.costs, lanes.kept_back.records())


def waiting_in(pool: Pool) -> int:
    """Records that wait for a worker."""
    return len(pool.lanes) - pool.lanes.kept_back.now.records


def is_saturated(pool: Pool) -> bool:
    """Each worker has something to do, and there is something for each to do next.

    Never with calls, which a worker opens beside what it runs.
    """
    if pool.calls.at_once:
        return False
    takers = pool.crew.takers
    return waiting_in(pool) > len(takers) > 0 and all(worker.chunks for worker in takers)


def is_supplied(pool: Pool) -> bool:
    """Each worker has its next chunk already. Never with calls either."""
    if pool.calls.at_once:
        return False
    takers = pool.crew.takers
    return bool(takers) and all(len(worker.chunks) == CHUNKS_IN_FLIGHT for worker in takers)
