"""The handlers that benchmarks/full_path.py gives to Oncepool."""

from __future__ import annotations

import os
from typing import Any

import psycopg

from processing import App, Request

SCHEMA = os.environ.get("ONCEPOOL_DATABASE_SCHEMA", "oncepool")
INSERT = f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (%s, %s)"
COPY = f"COPY {SCHEMA}.effects (id, amount) FROM STDIN (FORMAT binary)"

app = App()


@app.handler("bench.noop")
def noop(payload: dict[str, Any]) -> None:
    """Nothing, so that only the way is measured."""


@app.handler("bench.insert")
def insert(payload: dict[str, Any], request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
    """One row."""
    tx.execute(INSERT, (request.id, payload["amount"]))


@app.handler("bench.pipelined", pipeline=True)
def pipelined(payload: dict[str, Any], request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
    """One row, whose answer is not waited for."""
    tx.execute(INSERT, (request.id, payload["amount"]))


@app.batch_handler("bench.batch")
def batch(requests: list[Request[dict[str, Any]]], tx: psycopg.Cursor[Any]) -> list[None]:
    """One row each, by one COPY."""
    with tx.copy(COPY) as copy:
        copy.set_types(("text", "int4"))
        for request in requests:
            copy.write_row((request.id, request.payload["amount"]))
    return [None] * len(requests)
