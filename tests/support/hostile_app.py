"""An app whose handlers do what handlers should not. Run by real workers in tests/system.

Its annotations ask for plain JSON: some hundred workers of it start without pydantic.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from processing import App, Done, NotDone, Reject, Request, Retry

app = App()


def rest(payload: dict[str, Any]) -> None:
    """Takes so many seconds, or until a file is there."""
    end = time.monotonic() + payload["seconds"]
    while not ("until" in payload and Path(payload["until"]).exists()):
        left = end - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(0.02, left))


@app.handler("effect")
def effect(
    payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]
) -> dict[str, Any]:
    """Leaves one row, in a table without a unique key."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
    return {"n": payload.get("n")}


@app.handler("noted")
def noted(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Notes outside that it was entered, then leaves one row."""
    with Path(payload["file"]).open("a") as file:
        file.write(f"{request.id}\n")
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))


@app.batch_handler("batch")
def batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
    """The same for many at once."""
    for request in requests:
        table = request.payload["table"]
        tx.execute(f"INSERT INTO {table} VALUES (%s)", (request.id,))
    return [request.payload["n"] for request in requests]


@app.handler("raises")
def raises(payload: Any) -> None:
    """Fails."""
    raise ValueError("boom")


@app.handler("rejects")
def rejects(payload: Any) -> None:
    """Refuses."""
    raise Reject("no_funds", "none left")


@app.handler("retries")
def retries(payload: Any) -> None:
    """Can't now."""
    raise Retry(after=1, reason="later")


@app.handler("exits")
def exits(payload: Any) -> None:
    """Calls sys.exit."""
    sys.exit(3)


@app.handler("dies")
def dies(payload: Any) -> None:
    """Ends its process."""
    os._exit(3)


@app.handler("segfaults")
def segfaults(payload: Any) -> None:
    """Reads address 0."""
    ctypes.string_at(0)


@app.handler("sleeps", timeout=0.5)
def sleeps(payload: Any) -> None:
    """Never returns."""
    time.sleep(3600)


@app.handler("slow", timeout=600)
def slow(payload: dict[str, Any]) -> Any:
    """Takes its time; the file that it names shows that it runs."""
    if "file" in payload:
        Path(payload["file"]).touch()
    time.sleep(payload["seconds"])
    return "slept"


@app.handler("computes", timeout=60)
def computes(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row and never comes to an end; the file that it names shows that it runs."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
    Path(payload["file"]).touch()
    while True:
        pass


@app.handler("heeds", timeout=60, retries=3)
def heeds(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
    """Leaves one row and runs until it is told to end; then it gives up, or is done."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
    Path(payload["file"]).touch()
    while not request.stopping:
        time.sleep(0.01)
    if payload["then"] == "give up":
        raise RuntimeError("told to end")
    return "done all the same"


@app.handler("paced", timeout=60)
def paced(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Takes its time, then leaves one row."""
    rest(payload)
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))


@app.handler("ordered")
def ordered(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row, and has what it is about counted anew."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
    request.follow_up("recount", payload)


@app.handler("recount", coalesce=lambda payload: payload["sku"])
def recount(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row; of those that wait the newest is enough."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))


@app.handler("unjson")
def unjson(payload: Any) -> Any:
    """Returns what JSON can't hold."""
    return object()


@app.handler("commits")
def commits(payload: Any, tx: psycopg.Cursor[Any]) -> None:
    """Tries to end the transaction."""
    tx.execute("COMMIT")


@app.handler("rolls_back")
def rolls_back(payload: Any, tx: psycopg.Cursor[Any]) -> None:
    """Ends the transaction behind the guard's back."""
    tx._conn.pgconn.exec_(b"ROLLBACK")


@app.handler("closes")
def closes(payload: Any, tx: psycopg.Cursor[Any]) -> None:
    """Closes the connection behind the guard's back."""
    tx._conn.close()


@app.handler("external", effect="external")
def external(payload: Any) -> Any:
    """Something outside."""
    return "charged"


@app.handler("external_dies", effect="external")
def external_dies(payload: Any) -> None:
    """Dies after its claim."""
    os._exit(9)


@app.handler("charges", effect="external", timeout=50)
def charges(payload: dict[str, Any]) -> Any:
    """Something outside that can be counted, and that takes its time, or until a file is there."""
    with Path(payload["file"]).open("a") as file:
        file.write("charged\n")
    rest(payload)
    return "charged"


def was_charged(request: Request[dict[str, Any]]) -> Done | NotDone:
    """Looks at the outside."""
    return Done("found") if Path(request.payload["file"]).exists() else NotDone()


@app.handler("checked", effect="external", timeout=50, check=was_charged)
def checked(payload: dict[str, Any]) -> Any:
    """The same, and it can be found out whether it happened."""
    answer = charges(payload)
    if payload.get("cut"):
        raise ConnectionResetError("cut off before the answer")
    return answer


def dies_asking(request: Request[dict[str, Any]]) -> Done:
    """Ends the worker that asks, after a note of it."""
    with Path(request.payload["asked"]).open("a") as file:
        file.write("asked\n")
    os._exit(9)


@app.handler("deadly_check", effect="external", timeout=50, check=dies_asking)
def deadly_check(payload: dict[str, Any]) -> None:
    """In doubt, and nobody can find out."""
    raise ConnectionResetError("cut off before the answer")


@app.handler("eats")
def eats(payload: Any) -> None:
    """Takes all the memory that it gets."""
    kept = []
    while True:
        kept.append(bytearray(16 * 2**20))


@app.handler("pure", effect="none")
def pure(payload: dict[str, Any]) -> Any:
    """Computes."""
    return sum(range(payload["n"]))
