"""An app whose handlers note when they began and ended, also where others can see it at once.

While the file that NO_START names is there, no worker can start.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psycopg

from processing import App, Request

app = App()


@app.on_worker_start
def connect() -> dict[str, Any]:
    """A connection beside the worker's own, so that a note does not wait for the commit."""
    if "NO_START" in os.environ and Path(os.environ["NO_START"]).exists():
        raise RuntimeError("the licence server refused")
    notes = psycopg.connect(os.environ["ONCEPOOL_DATABASE_URL"], autocommit=True)
    return {"notes": notes}


def _run(payload: dict[str, Any], tx: Any, request: Request[Any], notes: Any) -> None:
    note = f"INSERT INTO {payload['table']}_notes VALUES (%s, %s, %s, clock_timestamp())"
    notes.execute(note, (request.id, request.type, "begin"))
    time.sleep(payload["seconds"])
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
    notes.execute(note, (request.id, request.type, "end"))


@app.handler("few", retries=2)
def few(payload: dict[str, Any], tx: Any, request: Request[Any], notes: Any) -> None:
    """What is limited while it runs."""
    _run(payload, tx, request, notes)


@app.handler("own", max_at_once=1, retries=2)
def own(payload: dict[str, Any], tx: Any, request: Request[Any], notes: Any) -> None:
    """What its handler limits."""
    _run(payload, tx, request, notes)


@app.handler("other")
def other(payload: dict[str, Any], tx: Any, request: Request[Any], notes: Any) -> None:
    """What nothing limits."""
    _run(payload, tx, request, notes)
