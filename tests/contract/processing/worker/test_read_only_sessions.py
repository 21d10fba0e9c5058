"""A handler that makes its session read-only is no database that is away."""

from __future__ import annotations

from typing import Any

import pytest

from processing import App, Done, Request
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


def test_nor_is_it_one_for_what_a_check_has_settled(stack: Stack, schema: str) -> None:
    app, asked = App(), []

    @app.handler("pay")
    def pay(payload: str, tx: Any) -> None:
        tx.execute(payload)

    def check(request: Request[Any]) -> Done:
        asked.append(request.id)
        return Done(None)

    @app.handler("charge", effect="external", check=check)
    def charge(payload: str) -> None:
        raise ValueError("nobody knows")

    bench = Bench(app, stack.database, schema)
    doubt = bench.record("c", "charge", "x")
    bench.run(doubt)
    assert bench.rows() == {"c": ("in_doubt", "handler_error")}
    bench.run(bench.record("a", "pay", "SET default_transaction_read_only = on"))
    report = bench.run(doubt)
    assert (report.database_up, report.returned, asked) == (True, [], ["c"])
    assert bench.rows() == {"a": ("done", "ok"), "c": ("done", "ok")}
    bench.executor.close()
