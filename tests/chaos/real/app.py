"""The app that runs under chaos. Each handler notes that it was entered, outside of everything.

Effects go into a table without a unique key, or to a recording server: both can show a second one.
"""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path
from typing import Any

import psycopg

from processing import App, Done, NotDone, Reject, Request, RetryPolicy, Unknown
from tests.chaos.real import clock, harms, points
from tests.chaos.real.orders import Obedience
from tests.chaos.real.storm import storm_of, wanted

app = App()

SCHEMA = os.environ["CHAOS_SCHEMA"]
OUTSIDE = int(os.environ["CHAOS_OUTSIDE"])
ENTRIES = os.open(os.environ["CHAOS_ENTRIES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
STORM = storm_of(Path(os.environ["CHAOS_ENTRIES"]))
OBEDIENCE = Obedience(os.environ["CHAOS_ORDERS"])
EFFECT = (
    f"INSERT INTO {SCHEMA}.effects (id, key, n, type, partition, kafka_offset, main)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
SWIFT = RetryPolicy(attempts=6, base=0.3, factor=2, cap=3)
FEW = RetryPolicy(attempts=3, base=0.3, factor=2, cap=3)
points.arm(OBEDIENCE)
clock.follow()


def enter(request: Request[Any]) -> None:
    """Notes the entry, and does the harm that was ordered, if any was."""
    where = f"{request.partition}\t{request.offset}\t{os.getppid()}\t{os.getpid()}"
    # One clock is the machine's for good, the other one may be made to jump.
    os.write(ENTRIES, f"{request.id}\t{where}\t{time.monotonic()}\t{time.time()}\n".encode())
    if (harm := OBEDIENCE.take("in_handler", request.id)) is not None:
        harms.do(harm)


def leave_effect(request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
    """One row for this run."""
    payload = request.payload
    tx.execute(EFFECT, (
        request.id, payload["key"], payload["n"], request.type, request.partition, request.offset,
        os.getppid(),
    ))  # fmt: skip


def plain(
    payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]
) -> dict[str, int]:
    """One row."""
    enter(request)
    leave_effect(request, tx)
    return {"n": payload["n"]}


def lock(accounts: list[int], tx: psycopg.Cursor[Any], pause: float = 0.002) -> None:
    """Locks rows one after the other."""
    for account in accounts:
        tx.execute(f"UPDATE {SCHEMA}.accounts SET n = n + 1 WHERE id = %s", (account,))
        time.sleep(pause)


@app.handler("move", timeout=6, retries=SWIFT)
def move(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> dict[str, int]:
    """One row, and in a storm of locks those that all want."""
    enter(request)
    if STORM.exists():
        lock(wanted(random.Random(request.id)), tx, pause=0.02)  # also where little is to do
    leave_effect(request, tx)
    return {"n": payload["n"]}


app.handler("pay", timeout=6, retries=SWIFT)(plain)
app.handler("later", timeout=6, retries=SWIFT)(plain)
app.handler("recount", timeout=6, retries=SWIFT, coalesce=lambda p: p["key"], window=0.5)(plain)
app.handler("once", timeout=6, redelivery=False)(plain)


@app.batch_handler("batch", timeout=6, retries=SWIFT)
def batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
    """One row for each."""
    for request in requests:
        enter(request)
        leave_effect(request, tx)
    return [{"n": request.payload["n"]} for request in requests]


@app.handler("shaky", timeout=6, retries=SWIFT)
def shaky(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves its row and fails, so often as it is told; what it left must be gone each time."""
    enter(request)
    leave_effect(request, tx)
    if request.attempt <= payload["fails"]:
        raise RuntimeError("shaky")


@app.handler("swap", timeout=6, retries=SWIFT)
def swap(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Locks two rows that others lock in the other order."""
    enter(request)
    lock(payload["accounts"], tx)
    leave_effect(request, tx)


@app.handler("doomed", timeout=6, retries=FEW)
def doomed(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Fails at each of its attempts, and no more once an operator has it tried again."""
    enter(request)
    leave_effect(request, tx)
    dead = STORM.with_name(f"dead-{payload['key']}-{payload['n']}")
    if not dead.exists():
        if request.attempt == FEW.attempts:
            dead.touch()
        raise RuntimeError("doomed")


@app.handler("orphan", timeout=6)
def orphan(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Breaks a constraint that is looked at only in the end."""
    enter(request)
    leave_effect(request, tx)
    tx.execute(f"INSERT INTO {SCHEMA}.children VALUES (%s)", (payload["n"],))


@app.handler("nul", timeout=6)
def nul(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
    """Returns what the database cannot hold."""
    enter(request)
    leave_effect(request, tx)
    return "a\0b"


@app.handler("refused", timeout=6)
def refused(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Refuses."""
    enter(request)
    leave_effect(request, tx)
    raise Reject("no_funds")


@app.handler("pure", timeout=6, effect="none")
def pure(payload: dict[str, Any], request: Request[Any]) -> int:
    """Computes."""
    enter(request)
    return int(payload["n"]) + 1


def ask_outside(what: str, request: Request[Any]) -> str:
    """One call of the recording server. Raises OSError where the answer is lost."""
    with socket.create_connection(("127.0.0.1", OUTSIDE), 5) as outside:
        outside.sendall(f"{what} {request.id}\n".encode())
        with outside.makefile() as answer:
            if not (line := answer.readline()):
                raise ConnectionError("no answer")
    return line.strip()


def look_outside(request: Request[Any]) -> Done | NotDone | Unknown:
    """Whether the call has reached the outside."""
    try:
        return Done("found") if ask_outside("FIND", request) == "yes" else NotDone()
    except OSError:
        return Unknown()


@app.handler("charge", timeout=6, effect="external", retries=SWIFT, check=look_outside)
def charge(payload: dict[str, Any], request: Request[Any]) -> str:
    """An effect outside that can be looked for."""
    enter(request)
    return ask_outside("CHARGE", request)


@app.handler("blind", timeout=6, effect="external")
def blind(payload: dict[str, Any], request: Request[Any]) -> str:
    """An effect outside that nobody can look for."""
    enter(request)
    return ask_outside("CHARGE", request)
