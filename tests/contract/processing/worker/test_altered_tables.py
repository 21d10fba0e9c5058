"""A table is altered while workers run: statements that the server keeps no longer fit it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App
from stack import Stack
from tests.support.executor import Bench

OFTEN = 8
"""More often than a statement runs before the server keeps it."""


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    def read(payload: Any, tx: psycopg.Cursor[Any]) -> list[Any]:
        return list(tx.execute(f"SELECT * FROM {schema}.shapes").fetchone() or ())

    app.handler("read")(read)
    app.handler("call", effect="external")(read)

    @app.handler("alter")
    def alter(payload: Any, tx: psycopg.Cursor[Any]) -> list[Any]:
        tx.execute(f"ALTER TABLE {schema}.shapes ADD COLUMN {payload['name']} int DEFAULT 0")
        return read(payload, tx)

    made = Bench(app, stack.database, schema)
    made.query(f"CREATE TABLE {schema}.shapes (a int)")
    made.query(f"INSERT INTO {schema}.shapes VALUES (1)")
    yield made
    made.executor.close()
    made.app.stop_worker()


def run(bench: Bench, kind: str, name: str, count: int = OFTEN) -> set[tuple[str, str, int]]:
    """States and codes of some requests, and how many columns they saw."""
    names = [f"{kind} {name} {n}" for n in range(count)]
    report = bench.run(*(bench.record(n, kind, {"name": name}) for n in names))
    assert (report.returned, report.unclear, report.database_up) == ([], [], True)
    found = bench.query(
        "SELECT DISTINCT state, code, jsonb_array_length(coalesce(result, '[]'))"
        f" FROM {bench.schema}.requests WHERE id = ANY(%s)", names,
    )  # fmt: skip
    return {*found}


def test_requests_run_again_on_a_new_connection(bench: Bench) -> None:
    assert run(bench, "read", "x") == {("done", "ok", 1)}
    bench.query(f"ALTER TABLE {bench.schema}.shapes ADD COLUMN b int")
    assert run(bench, "read", "y") == {("done", "ok", 2)}
    assert len(bench.backends) == 2


def test_calls_outside_are_in_doubt_once(bench: Bench) -> None:
    assert run(bench, "call", "x") == {("done", "ok", 1)}
    bench.query(f"ALTER TABLE {bench.schema}.shapes ADD COLUMN b int")
    assert run(bench, "call", "y", 1) == {("in_doubt", "handler_error", 0)}
    assert run(bench, "call", "z") == {("done", "ok", 2)}


def test_a_handler_that_alters_what_it_reads_alters_it_once(bench: Bench) -> None:
    assert run(bench, "read", "x") == {("done", "ok", 1)}
    assert run(bench, "alter", "b", 1) == {("done", "ok", 2)}
    assert run(bench, "read", "y") == {("done", "ok", 2)}
