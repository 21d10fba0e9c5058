"""An app with a handler that comes each second: no app may have that, as five fields go by the
minute. What makes the ticks knows a sixth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg

from feedback.contract import schedule
from processing import App, Request, Tick
from tests.support.waiting import eventually

schedule._FIELDS = 6  # type: ignore[misc]
HOLD = Path(os.environ["TEST_HOLD"])

app = App()


@app.periodic("* * * * * *", name="each-second", missed="all")
@app.handler("tick", timeout=60)
def tick(tick: Tick, tx: psycopg.Cursor[Any], request: Request[Tick]) -> None:
    """Leaves one row. While a file is there it notes in it whose worker runs it, and waits."""
    tx.execute(f"INSERT INTO {os.environ['TEST_TABLE']} VALUES (%s)", (request.id,))
    if HOLD.exists():
        with HOLD.open("a") as file:
            file.write(f"{os.getppid()} {request.id}\n")
        eventually(lambda: not HOLD.exists(), 50)
