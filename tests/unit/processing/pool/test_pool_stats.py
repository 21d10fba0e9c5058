"""What is said of a pool as it stands."""

from __future__ import annotations

from processing.pool.dispatch import PREFETCH
from processing.pool.pool_stats import is_saturated, is_supplied
from tests.unit.processing.pool.test_pool import pool_with, record, report


def test_it_is_saturated_where_nothing_that_comes_could_start() -> None:
    pool = pool_with(2)
    assert not is_saturated(pool)
    pool.submit([record(0), record(1)])
    pool.plan(1.0)
    assert not is_saturated(pool), "both are busy, and there is nothing to do next"
    pool.submit([record(n) for n in range(2, 5)])
    pool.plan(1.1)
    assert is_saturated(pool)
    pool.crew.leave(0)
    assert is_saturated(pool), "who leaves takes nothing more"
    pool.report(1, report(pool.crew.all[1].chunks[0].number))
    assert not is_saturated(pool)


def test_it_is_supplied_where_each_worker_has_its_next_chunk() -> None:
    pool = pool_with(2)
    assert not is_supplied(pool)
    pool.submit([record(n) for n in range(1000)])
    pool.plan(1.0)
    pool.submit([record(n) for n in range(1000, 1000 + PREFETCH)])
    pool.plan(1.1)
    assert [len(worker.chunks) for worker in pool.crew.all.values()] == [2, 1]
    pool.submit([record(n) for n in range(2000, 2000 + PREFETCH)])
    assert not is_supplied(pool), "the second one has nothing yet to do next"
    pool.plan(1.2)
    assert is_supplied(pool)
    pool.report(1, report(pool.crew.all[1].chunks[0].number))
    assert not is_supplied(pool)
    pool.crew.leave(1)
    assert is_supplied(pool), "who leaves takes nothing more"
    pool.crew.leave(0)
    assert not is_supplied(pool)


def test_it_is_never_supplied_with_what_goes_one_by_one() -> None:
    """What is quick would have its turn with the next report."""
    pool = pool_with(1)
    pool.submit([record(n, kind="slow") for n in range(1000)])
    pool.plan(1.0)
    assert is_saturated(pool)
    assert not is_supplied(pool)
