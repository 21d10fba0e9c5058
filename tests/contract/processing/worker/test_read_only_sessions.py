"""A handler that makes its session read-only is no database that is away."""

from __future__ import annotations

from typing import Any

import pytest

from processing import App
from stack import Stack
from tests.support.executor import Bench


@pytest.mark.parametrize(
    "setting",
    [
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET default_transaction_read_only = on",
    ],
)
def test_a_session_that_a_handler_made_read_only_is_no_database_that_is_away(
    stack: Stack, schema: str, setting: str
) -> None:
    app = App()

    @app.handler("pay")
    def pay(payload: str, tx: Any) -> None:
        tx.execute(payload)

    bench = Bench(app, stack.database, schema)
    assert bench.run(bench.record("a", "pay", setting)).database_up
    report = bench.run(bench.record("b", "pay", "SELECT 1"))
    assert (report.database_up, report.returned, report.unclear) == (True, [], [])
    assert bench.rows() == {"a": ("done", "ok"), "b": ("done", "ok")}
    bench.executor.close()
