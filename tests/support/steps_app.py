"""An app that leaves what a judge needs to see order, and entries of handlers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psycopg

from processing import App, Request

app = App()

TABLE = os.environ.get("STEPS_TABLE", "steps")
"""Columns: seq (serial), id, key, number, main (pid of the process above). Without a unique key."""
ENTRIES = os.environ.get("STEPS_ENTRIES", os.devnull)
"""A file that gets a line for each handler that is entered."""
_entries = os.open(ENTRIES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def rest(payload: dict[str, Any]) -> None:
    """Takes so many seconds, none where a file is there."""
    if not ("until" in payload and Path(payload["until"]).exists()):
        time.sleep(payload.get("seconds", 0))


def _entered(request: Request[Any]) -> None:
    os.write(_entries, f"{request.id}\n".encode())


def wait_for(file: str) -> None:
    """Until it is there."""
    while not Path(file).exists():
        time.sleep(0.01)


@app.handler("step")
def step(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """One row, in the order of its key."""
    _entered(request)
    rest(payload)
    tx.execute(
        f"INSERT INTO {TABLE} (id, key, number, main) VALUES (%s, %s, %s, %s)",
        (request.id, payload["key"], payload["number"], os.getppid()),
    )


@app.handler("once", redelivery=False)
def once(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """The same, of a type that must not be entered twice."""
    step(payload, tx, request)


@app.handler("charge", effect="external")
def charge(payload: dict[str, Any], request: Request[Any]) -> None:
    """Its effect is its line in the file."""
    _entered(request)
    if "ends" in payload:
        wait_for(payload["ends"])
    rest(payload)


@app.handler("sum", effect="none")
def add(payload: dict[str, Any], request: Request[Any]) -> Any:
    """Pure computation."""
    _entered(request)
    rest(payload)
    return sum(payload["numbers"])
