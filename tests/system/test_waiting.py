"""The waiting queue under the whole service: several instances, kills, and shutdowns."""

from __future__ import annotations

import os
import signal

import orjson

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

PARTITIONS = 4


def add(bench: Bench, rows: WaitingRows, n: int, *, spread: float = 0.0) -> set[str]:
    """So many waiting rows, which become due over `spread` seconds."""
    rows.query(
        f"INSERT INTO {bench.schema}.requests (id, type, state, code, effect, topic, partition,"
        " kafka_offset, produced_at, due_at, not_before, payload, headers, run)"
        " SELECT 'due-'||g, 'effect', 'waiting', 'delayed', 'transaction', 'top', 0, g, now(),"
        " now() + g * make_interval(secs => %s), now() + g * make_interval(secs => %s), %s, '[]', 0"
        " FROM generate_series(1, %s) g",
        spread / n,
        spread / n,
        orjson.dumps({"table": bench.table, "n": 1}),
        n,
    )
    return {f"due-{number}" for number in range(1, n + 1)}


def test_waiting_rows_run_once_over_two_instances_one_of_which_is_killed(
    bench: Bench, rows: WaitingRows
) -> None:
    first = bench.start()
    bench.start()
    ids = add(bench, rows, 4000, spread=6.0)
    eventually(lambda: bench.done() > 800, WAIT, lambda: bench.instances[1].log)
    os.kill(first.workers()[0], signal.SIGKILL)
    eventually(lambda: bench.done() > 1600, WAIT)
    first.process.kill()
    taken = f"SELECT count(*)::int FROM {bench.schema}.requests WHERE token IS NOT NULL"
    # What it had claimed waits for its lease; a minute is long for a test.
    eventually(lambda: bench.done() + bench.query(taken)[0][0] == 4000, WAIT)
    rows.query(
        f"UPDATE {bench.schema}.requests SET due_at = now(), lease_until = now()"
        " WHERE state = 'waiting' AND token IS NOT NULL"
    )
    eventually(lambda: bench.done() == 4000, WAIT, lambda: bench.instances[1].log)
    bench.check_books(ids)


def test_rows_that_are_due_and_fresh_requests_run_side_by_side_through_a_shutdown(
    bench: Bench, rows: WaitingRows
) -> None:
    first = bench.start()
    ids = add(bench, rows, 3000, spread=3.0)
    payload = {"table": bench.table}
    fresh = {bench.client.submit("effect", payload, request_id=f"f-{n}") for n in range(3000)}
    bench.client.flush(30)
    eventually(lambda: bench.done() > 500, WAIT, lambda: first.log)
    bench.start()
    assert first.stop() == 0
    eventually(lambda: bench.done() == 6000, WAIT, lambda: bench.instances[1].log)
    bench.check_books(ids | fresh)
    assert bench.query(f"SELECT sum(crashes)::int FROM {bench.schema}.requests") == [(0,)]
