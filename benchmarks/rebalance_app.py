"""The handler that benchmarks/rebalance.py runs: one INSERT into a table without a unique key.

So a request that ran twice leaves two rows.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg

from processing import App, Request

SCHEMA = os.environ.get("ONCEPOOL_DATABASE_SCHEMA", "oncepool")
INSERT = f"INSERT INTO {SCHEMA}.effects (id) VALUES (%s)"

app = App()


@app.handler("bench.insert")
def insert(_payload: dict[str, Any], request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
    """One row."""
    tx.execute(INSERT, (request.id,))
