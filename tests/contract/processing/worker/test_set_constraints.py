"""What handlers say of constraints stands past the ends of segments, until somebody says otherwise.

As docs/handlers.md has it: whoever follows in the transaction may not expect it, and nobody but
handlers, and the schema, has a say in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App
from stack import Stack
from tests.support.executor import Bench

SEGMENT = 4
TABLES = """
CREATE TABLE {s}.late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE {s}.early (n int UNIQUE DEFERRABLE INITIALLY IMMEDIATE);
"""


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    @app.handler("say")
    def say(payload: str, tx: psycopg.Cursor[Any]) -> None:
        tx.execute(payload)

    @app.handler("look")
    def look(payload: str, tx: psycopg.Cursor[Any]) -> str:
        """Whether a second row is refused at once; leaves none."""
        try:
            with tx.connection.transaction():
                tx.execute(f"INSERT INTO {schema}.{payload} VALUES (1), (1)")
                tx.execute(f"DELETE FROM {schema}.{payload}")
        except psycopg.errors.UniqueViolation:
            return "immediate"
        return "deferred"

    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(TABLES.replace("{s}", schema).encode())
    made = Bench(app, stack.database, schema, segment=SEGMENT)
    yield made
    made.executor.close()
    made.app.stop_worker()


@pytest.mark.parametrize(
    "table, said, before, after",
    [
        ("late", "", "deferred", "deferred"),
        ("early", "", "immediate", "immediate"),
        ("late", "IMMEDIATE", "deferred", "immediate"),
        ("early", "DEFERRED", "immediate", "deferred"),
    ],
)
def test_what_a_handler_has_said_of_constraints_outlasts_its_segment(
    bench: Bench, table: str, said: str, before: str, after: str
) -> None:
    saying = f"SET CONSTRAINTS {bench.schema}.{table}_n_key {said}" if said else "SELECT"
    looks = [bench.record(f"l{n:02d}", "look", table) for n in range(3 * SEGMENT)]
    bench.run(*looks[:SEGMENT], bench.record("said", "say", saying), *looks[SEGMENT:])
    assert {*bench.rows().values()} == {("done", "ok")}
    found = {str(status["id"]): status.get("result") for status in bench.statuses}
    assert [found[f"l{n:02d}"] for n in range(3 * SEGMENT)] == [
        *[before] * SEGMENT, *[after] * 2 * SEGMENT
    ]  # fmt: skip
