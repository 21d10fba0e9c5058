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
            both.wait(30)

    bench = Bench(app, stack.database, schema)
    executors = [bench.executor, bench.another(stack.database)]
    for order, name in enumerate(("x1", "x2"), start=1):
        bench.query(
            f"INSERT INTO {schema}.requests (id, type, state, code, effect, topic, partition,"
            " kafka_offset, produced_at, payload, headers, token, run, due_at, not_before)"
            " VALUES (%s, 'wait', 'waiting', 'parked', 'transaction', 'topic', 0, 0, now(), '{}',"
            " '[]', %s, 1, now() + interval '1 min', now())",
            name, f"local:{order}",
        )  # fmt: skip

    def due(name: str, order: int) -> Any:
        headers = [("ce_id", name.encode()), ("ce_type", b"wait")]
        return ("topic", -1, -1, 1, None, b"{}", headers, "wait", order)

    chunks = [
        chunk_run([due("x2", 2), bench.record("x1", "wait", {})], token="a"),
        chunk_run([due("x1", 1), bench.record("x2", "wait", {})], token="b"),
    ]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda pair: pair[0].run(pair[1]), zip(executors, chunks, strict=True)))
    for executor in executors:
        executor.close()
    app.stop_worker()
    assert bench.rows() == {"x1": ("done", "ok"), "x2": ("done", "ok")}
    assert entered == {"x1": 1, "x2": 1}, "a deadlock has a chunk done again"
    found = bench.query(f"SELECT resends FROM {schema}.requests")
    assert found == [(1,), (1,)]
