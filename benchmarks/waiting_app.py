"""The handlers of benchmarks/full_path_app.py that benchmarks/waiting.py runs, counted.

A count of the journal's rows would be felt where a million wait, and its counters are a second
behind.
"""

from __future__ import annotations

from typing import Any

import psycopg

from benchmarks.full_path_app import INSERT
from benchmarks.tally import Tally
from processing import App, Request

app = App()
_tallies: list[Tally] = []


@app.on_worker_start
def count() -> None:
    """A tally of each worker's own."""
    _tallies.append(Tally())


@app.handler("bench.noop")
def noop(_payload: dict[str, Any]) -> None:
    """Nothing, so that only the way is measured."""
    _tallies[0].add()


@app.handler("bench.insert")
def insert(payload: dict[str, Any], request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
    """One row."""
    tx.execute(INSERT, (request.id, payload["amount"]))
    _tallies[0].add()
