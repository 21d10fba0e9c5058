"""A sandbox whose handlers write to a real database, in the test's own transaction."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from processing import App, Request
from processing.testing import Sandbox, kill_worker
from stack import Stack

app = App()


@app.handler("note", retries=1)
def note(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    tx.execute("INSERT INTO notes VALUES (%s)", (request.id,))
    if payload.get("kill"):
        kill_worker()
    if payload.get("break"):
        tx.execute("SELECT nonsense")
    if payload.get("commit"):
        tx.execute("COMMIT")


@pytest.mark.parametrize("give", ["connection", "cursor"])
def test_what_is_done_stays_and_what_is_not_is_undone(stack: Stack, give: str) -> None:
    with psycopg.connect(stack.database) as connection:
        connection.execute("CREATE TEMP TABLE notes (id text)")
        tx = connection if give == "connection" else connection.cursor()
        with Sandbox(app, tx=tx) as sandbox:
            for name in ("kill", "break", "fine"):
                sandbox.client.submit("note", {name: True}, request_id=name)
            sandbox.run()
            found = {row["id"]: (row["state"], row["code"]) for row in sandbox.requests()}
            assert found == {
                "kill": ("dead", "worker_died"), "break": ("waiting", "handler_error"),
                "fine": ("done", "ok"),
            }  # fmt: skip
            if give == "connection":  # then its cursors refuse what would end the transaction
                status = sandbox.client.call("note", {"commit": True}, timeout=100)
                assert status.state == "dead"
        assert connection.execute("SELECT id FROM notes").fetchall() == [("fine",)]
        connection.rollback()
