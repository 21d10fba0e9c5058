"""An app that takes anything it may be given. Run by real workers beside generated messages.

What runs leaves a row in a table without a unique key, which can show a second run.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
from pydantic import BaseModel

from processing import App, Request

app = App()

EFFECT = f"INSERT INTO {os.environ['ONCEPOOL_DATABASE_SCHEMA']}.effects VALUES (%s)"


class Amount(BaseModel):
    """A payload of a certain shape."""

    amount: int


@app.handler("pure")
def pure(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Takes any JSON."""
    tx.execute(EFFECT.encode(), (request.id,))


@app.handler("raw")
def raw(payload: bytes, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Takes any bytes."""
    tx.execute(EFFECT.encode(), (request.id,))


@app.handler("shaped")
def shaped(payload: Amount) -> int:
    """Takes one shape."""
    return payload.amount
