"""What is said of a pool as it stands."""

from __future__ import annotations

from processing.pool.pool_stats import is_saturated
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
