"""An app with a handler that is tried again, and nothing else."""

from __future__ import annotations

from typing import Any

import psycopg

from processing import App, Request

app = App()


@app.handler("again", retries=1)
def again(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row, the second time."""
    if request.attempt == 1:
        raise ValueError("not yet")
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
