"""A handler adds requests to an outbox in the transaction that its own request is written in."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from feedback import outbox
from processing import App, Request
from stack import Stack
from tests.support.executor import Bench
from tests.support.outbox import Outbox


@pytest.mark.parametrize("options", [{}, {"pipeline": True}, {"effect": "external"}], ids=str)
@pytest.mark.parametrize("given", ["tx", "tx.connection"])
def test_what_a_handler_adds_stands_or_falls_with_its_request(
    stack: Stack, schema: str, outbox_: Outbox, given: str, options: dict[str, Any]
) -> None:
    app = App()

    @app.handler("pay", **options)
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        to = tx if given == "tx" else tx.connection
        added = outbox.add(to, "receipt.send", {}, request_id=f"receipt {request.id}")
        if payload == "fails":
            raise ValueError("bad row")
        return added

    bench = Bench(app, stack.database, schema)
    bench.run(*(bench.record(n, "pay", "fails" if n == "b" else "") for n in "abc"))
    bench.executor.close()
    failed = "in_doubt" if "effect" in options else "failed"
    ends = {"a": ("done", "ok"), "b": (failed, "handler_error"), "c": ("done", "ok")}
    assert bench.rows() == ends
    assert {row["id"] for row in outbox_.rows()} == {"receipt a", "receipt c"}
