"""The hostile app with all that needs rights of its own on the journal's tables."""

from __future__ import annotations

import os
from typing import Any

import psycopg

from processing import Request, RetryPolicy, Tick
from tests.support.hostile_app import app

__all__ = ["app"]

SOON = RetryPolicy(attempts=3, base=0.05, jitter=0)


@app.periodic(os.environ["TEST_CRON"], name="hourly", missed="all")
@app.handler("report")
def report(tick: Tick) -> None:
    """Comes by the clock."""


@app.handler("again", retries=SOON)
def again(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row, the second time."""
    if request.attempt == 1:
        raise ValueError("not yet")
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))


@app.handler("counted", coalesce=lambda payload: payload["sku"], window=0.05)
def counted(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row, for the newest of its reference."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))


@app.handler("computed", effect="none", retries=SOON)
def computed(payload: dict[str, Any], request: Request[Any]) -> int:
    """Knows it the second time."""
    if request.attempt == 1:
        raise ValueError("not yet")
    return 7
