"""A worker at its memory limit says nothing of requests that it could not read."""

from __future__ import annotations

import pytest

from tests.support.service import WAIT, Bench

LIMIT = "400MiB"
FREE = 3 * 1024 * 1024
"""Bytes that are left: enough to receive an order."""
SIZES = (200_000, 400_000, 600_000, 900_000)
"""Of orders, some of which can't be parsed then."""


@pytest.mark.long
def test_what_could_not_be_read_for_want_of_memory_runs_in_another_worker(bench: Bench) -> None:
    app = {"ONCEPOOL_APP": "tests.support.hoarding_app:app", "ONCEPOOL_WORKERS": "1"}
    instance = bench.start(ONCEPOOL_WORKER_MEMORY_LIMIT=LIMIT, **app)
    orders = []
    for size in SIZES:
        assert bench.outcome("hoard", {"free": FREE}).state == "done"
        orders.append(bench.client.submit("order", {"table": bench.table, "fill": "x" * size}))
        assert bench.client.wait(orders[-1], WAIT).state == "done", instance.log
    assert bench.query(f"SELECT id FROM {bench.table} ORDER BY id") == sorted(
        [(i,) for i in orders]
    )
    assert bench.query(f"SELECT count(*) FROM {bench.schema}.dead_letters") == [(0,)]
    assert "exit code 87" in instance.log
