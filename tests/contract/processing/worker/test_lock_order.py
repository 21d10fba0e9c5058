"""Rows are locked in the order of their ids, whatever a chunk does with them."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench, chunk_run
from tests.support.waiting import eventually


def claim(bench: Bench, name: str, order: int) -> None:
    bench.query(
        f"INSERT INTO {bench.schema}.requests (id, type, state, code, effect, topic, partition,"
        " kafka_offset, produced_at, payload, headers, token, run, due_at, not_before)"
        " VALUES (%s, 'wait', 'waiting', 'parked', 'transaction', 'topic', 0, 0, now(), '{}',"
        " '[]', %s, 1, now() + interval '1 min', now())",
        name, f"local:{order}",
    )  # fmt: skip


def due(name: str, order: int) -> Any:
    headers = [("ce_id", name.encode()), ("ce_type", b"wait")]
    return ("topic", -1, -1, 1, None, b"{}", headers, "wait", order)


def test_chunks_that_each_finish_a_row_and_answer_the_others_do_not_deadlock(
    stack: Stack, schema: str
) -> None:
    """Each finishes a claimed row and answers a copy of the other's, in the other order."""
    app, entered = App(), Counter[str]()
    both = threading.Barrier(2)

    @app.handler("wait")
    def wait(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request) -> None:
        entered[request.id] += 1
        if entered[request.id] == 1:
            both.wait(60)

    bench = Bench(app, stack.database, schema)
    executors = [bench.executor, bench.another(stack.database)]
    for order, name in enumerate(("x1", "x2"), start=1):
        claim(bench, name, order)
    chunks = [
        chunk_run([due("x2", 2), bench.record("x1", "wait", {})], token="a"),
        chunk_run([due("x1", 1), bench.record("x2", "wait", {})], token="b"),
    ]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda pair: pair[0].begin(pair[1]), zip(executors, chunks, strict=True)))
    for executor in executors:
        executor.close()
    app.stop_worker()
    assert bench.rows() == {"x1": ("done", "ok"), "x2": ("done", "ok")}
    assert entered == {"x1": 1, "x2": 1}, "a deadlock has a chunk done again"
    found = bench.query(f"SELECT resends FROM {schema}.requests")
    assert found == [(1,), (1,)]


def test_a_claimed_row_and_one_that_had_failed_are_locked_in_one_order(
    stack: Stack, schema: str
) -> None:
    """While somebody answers copies of both."""
    app, entered = App(), Counter[str]()

    @app.handler("wait")
    def wait(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request) -> None:
        entered[request.id] += 1

    bench = Bench(app, stack.database, schema)
    claim(bench, "x1", 1)
    claim(bench, "x2", 2)
    bench.query(f"UPDATE {schema}.requests SET state = 'failed', token = NULL WHERE id = 'x2'")
    lock = f"SELECT FROM {schema}.requests WHERE id = %s FOR UPDATE".encode()
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = %s"
    bench.run(bench.record("warm", "wait", {}))
    with psycopg.connect(stack.database) as other:
        other.execute(lock, ("x1",))
        records = [due("x1", 1), bench.record("x2", "wait", {})]
        thread = threading.Thread(target=bench.run, args=records)
        thread.start()
        eventually(lambda: bench.query(waits, bench.backends[-1][0]))
        other.execute(lock, ("x2",))
    thread.join(60)
    bench.executor.close()
    app.stop_worker()
    assert {bench.rows()[name] for name in ("x1", "x2")} == {("done", "ok")}
    assert entered == {"warm": 1, "x1": 1, "x2": 1}, "a deadlock has a chunk done again"
