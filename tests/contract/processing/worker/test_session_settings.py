"""What a database, the environment or a URL say of a session changes nothing."""

from __future__ import annotations

from typing import Any

import psycopg

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench


def test_an_id_is_the_same_in_every_encoding(stack: Stack, schema: str) -> None:
    """PGCLIENTENCODING says it as well, or a database that is not in UTF-8."""
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        return payload

    bench = Bench(app, stack.database, schema)
    bench.query(f"CREATE TABLE {schema}.effects (id text)")
    bench.executor = bench.another(f"{stack.database}?client_encoding=latin1")
    for _ in range(2):
        bench.run(bench.record("ünï", "pay", "é", key="ü".encode()))
    bench.executor.close()
    assert bench.rows() == {"ünï": ("done", "ok")}
    assert bench.effects() == ["ünï"]
    found = f"SELECT result, convert_from(key, 'UTF8') FROM {schema}.requests"
    assert bench.query(found) == [("é", "ü")]
