"""The waiting queue under the whole service: several instances, kills, and shutdowns."""

from __future__ import annotations

import os
import signal

import orjson
import pytest

from feedback.journal.claims import LEASE
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

PARTITIONS = 4
SKUS = 4


def order(bench: Bench) -> list[str]:
    """Requests that each ask for another one, which coalesces with those of the same thing."""
    ids = [f"ordered-{n}" for n in range(400)]
    for n, name in enumerate(ids):
        payload = {"table": bench.table, "sku": f"sku-{n % SKUS}"}
        bench.client.submit("ordered", payload, request_id=name)
    bench.client.flush(30)
    return ids


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


@pytest.mark.long  # the chaos run shows it too
def test_waiting_rows_run_once_over_two_instances_one_of_which_is_killed(
    bench: Bench, rows: WaitingRows
) -> None:
    first = bench.start()
    (dead,) = eventually(bench.facts, WAIT)
    bench.start()
    ids = add(bench, rows, 4000, spread=6.0)
    ordered = order(bench)
    due = (
        f"SELECT count(*)::int FROM {bench.schema}.requests WHERE id LIKE 'due-%' AND (state ="
        " 'done' OR token IS NOT NULL)"
    )
    eventually(lambda: bench.done() > 800, WAIT, lambda: bench.instances[1].log)
    os.kill(first.workers()[0], signal.SIGKILL)
    eventually(lambda: bench.done() > 1600, WAIT)
    first.process.kill()
    order(bench)  # what it had taken from the topic is sent again
    # What it had claimed waits for its lease; a minute is long for a test.
    eventually(lambda: bench.query(due) == [(4000,)], WAIT)
    held = rows.query(
        f"UPDATE {bench.schema}.requests SET due_at = now(), lease_until = now()"
        " WHERE state = 'waiting' AND starts_with(token, %s) RETURNING id",
        f"{dead['id']}:",
    )
    for request in ordered:
        assert bench.client.wait(request, WAIT).state == "done"
    unfinished = f"SELECT count(*)::int FROM {bench.schema}.requests WHERE state = 'waiting'"
    # Before any lease could end that was begun meanwhile.
    left = 0.9 * LEASE
    eventually(lambda: bench.query(unfinished) == [(0,)], left, lambda: bench.instances[1].log)
    # Of what coalesces nothing had to wait for a lease but what the dead instance had in hand.
    recounts = f"SELECT id, state, lost_claims FROM {bench.schema}.requests WHERE type = 'recount'"
    counted = {name for name, state, _ in bench.query(recounts) if state == "done"}
    assert len(counted) >= SKUS
    assert {(name,) for name, _, lost in bench.query(recounts) if lost} <= set(held)
    bench.check_books(ids | set(ordered) | counted)


@pytest.mark.long
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
