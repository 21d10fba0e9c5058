"""How the executor's statements find rows that came after they were prepared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench

MANY = 30_000


@pytest.fixture
def schema(new_schema: str) -> str:
    """Its tables have not been analysed yet, and are of no size."""
    return new_schema


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute("SELECT 1")

    made = Bench(app, stack.database, schema)
    # Nobody analyses the table but the test.
    made.query(f"ALTER TABLE {schema}.requests SET (autovacuum_enabled = false)")
    yield made
    made.executor.close()
    made.app.stop_worker()


def scans(bench: Bench) -> int:
    """How often the whole table was read, by the executor or by this."""
    connection = bench.executor._session.connection
    connection.execute("SELECT pg_stat_force_next_flush()")
    statement = (
        "SELECT seq_scan::int FROM pg_stat_user_tables"
        f" WHERE schemaname = '{bench.schema}' AND relname = 'requests'"
    )
    [(count,)] = bench.query(statement)
    return int(count)


def chunk(bench: Bench, word: str, count: int = 40) -> list[Any]:
    return [bench.record(f"{word}-{n}", "pay", {}) for n in range(count)]


def test_a_full_chunk_is_looked_up_by_the_index_of_a_young_journal(bench: Bench) -> None:
    for number in range(10):
        bench.run(*chunk(bench, f"young-{number}", 500))
    before = scans(bench)
    bench.run(*chunk(bench, "next", 500))
    assert scans(bench) == before


def test_statements_that_were_prepared_on_an_empty_journal_do_not_scan_a_full_one(
    bench: Bench,
) -> None:
    first = chunk(bench, "first")
    for _ in range(12):
        bench.run(*first)
        bench.query(f"DELETE FROM {bench.schema}.requests")
    columns = "id, type, state, code, effect, topic, partition, kafka_offset, produced_at"
    bench.query(
        f"INSERT INTO {bench.schema}.requests ({columns}) SELECT 'old-' || n, 'pay', 'done', 'ok',"
        f" 'transaction', 't', 0, n, now() FROM generate_series(1, {MANY}) AS n"
    )
    before = scans(bench)
    again = [bench.record(f"old-{n}", "pay", {}) for n in range(1, 20)]
    for word in ("a", "b", "c"):
        bench.run(*chunk(bench, word), *again)
    assert scans(bench) == before
