"""An app for tests of worker processes: one quick type that does harm where its payload says so.

Its annotations ask for plain JSON: some hundred workers of it start without pydantic.

The file that FRAGILE names, where it is there, says how the app fails to start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from processing import App, Done, Request, Retry

app = App()

if os.environ.get("FRAGILE") and (mood := Path(os.environ["FRAGILE"])).exists():
    if mood.read_text() == "raise":
        raise RuntimeError("a bad release")
    os._exit(7)

KEPT: list[bytearray] = []


def harm(do: str) -> None:
    """What a handler should not do."""
    match do.split():
        case ["segfault"]:
            ctypes.string_at(0)
        case ["exit"]:
            os._exit(9)
        case ["exit-once", path] if not Path(path).exists():
            Path(path).touch()
            os._exit(9)
        case ["close"]:
            os.closerange(3, 256)  # its process's own ends of what it shares, too
        case ["hang"]:
            time.sleep(3600)
        case ["child", path]:
            child = subprocess.Popen(["sleep", "3600"])
            Path(path).write_text(str(child.pid))
            time.sleep(3600)
        case ["keep", mib]:
            KEPT.append(bytearray(int(mib) * 2**20))
        case ["eat"]:
            while True:
                KEPT.append(bytearray(16 * 2**20))
        case _:
            rest(do)


def rest(do: str) -> None:
    """Takes its time, or goes on when a file is there."""
    match do.split():
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case ["await", path]:
            while not Path(path).exists():
                time.sleep(0.005)
        case ["retry", "until", path] if not Path(path).exists():
            raise Retry(after=0.3, counts=False)


def end_fork(number: int) -> None:
    """Forks a process and ends it with a signal. Raises where it ends by something else."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(KeyboardInterrupt):
            os.write(writer, b"!")
            while True:
                time.sleep(0.05)  # not pause(): the signal may come just before it
        os._exit(number)
    os.read(reader, 1)
    os.kill(child, number)
    _, status = os.waitpid(child, 0)
    assert number in (os.waitstatus_to_exitcode(status), -os.waitstatus_to_exitcode(status))


def fork(do: str) -> None:
    """Forks a process that does not end by os._exit."""
    if do.startswith("fork and "):
        end_fork(signal.Signals[do.rsplit(maxsplit=1)[-1]])
    elif os.fork() == 0:
        if do == "fork exit":
            sys.exit(0)
        if do == "fork raise":
            raise RuntimeError("in the child")
    else:
        time.sleep(0.5)  # so that the child would be the first to go on


def tell(do: str) -> str:
    """Makes the file that says "entered", where there is to be one; returns what is to be done."""
    match do.split(maxsplit=2):
        case ["tell", path, then]:
            Path(path).touch()
            return then
    return do


@app.handler("fragile", timeout=30, max_timeout=60)
def fragile(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
    """Leaves one row, then does what it is told; returns its process."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))
    while payload["do"] == "heed":
        if request.stopping:
            raise RuntimeError("told to end")
        time.sleep(0.01)
    try:
        if payload["do"].startswith("SELECT"):
            tx.execute(payload["do"])
        elif payload["do"].startswith("fork"):
            fork(payload["do"])
        else:
            harm(tell(payload["do"]))
    except MemoryError:
        KEPT.clear()
        raise
    return os.getpid()


def forks(request: Request[dict[str, Any]]) -> Done:
    """Finds out that it was done, and by which process."""
    fork(request.payload["do"])
    return Done(os.getpid())


@app.handler("fragile.call", effect="external", check=forks, timeout=30)
def fragile_call(payload: dict[str, Any], request: Request[Any]) -> Any:
    """Leaves a doubt, or goes on until it is told to end."""
    while payload["do"] == "heed":
        if request.stopping:
            return os.getpid()
        time.sleep(0.01)
    raise RuntimeError(payload["do"])


@app.handler("numbered", timeout=10)
def numbered(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves its number, in a table that says in which order they came."""
    columns = "(id, key, number)"
    tx.execute(
        f"INSERT INTO {payload['table']} {columns} VALUES (%s, %s, %s)",
        (request.id, (request.key or b"").decode(), payload["number"]),
    )
    harm(payload["do"])


@app.batch_handler("fragile.batch", timeout=10, max_timeout=60)
def fragile_batch(requests: list[Request[dict[str, Any]]], tx: psycopg.Cursor[Any]) -> Any:
    """The same for many at once."""
    for request in requests:
        tx.execute(f"INSERT INTO {request.payload['table']} VALUES (%s)", (request.id,))
        harm(request.payload["do"])
    return [os.getpid() for _ in requests]


def marked(payload: dict[str, Any]) -> str:
    """A fingerprint that does harm where it is made."""
    harm(payload["do"])
    return str(payload["do"])


@app.handler("fragile.marked", timeout=1.0, fingerprint=marked)
def fragile_marked(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row."""
    tx.execute(f"INSERT INTO {payload['table']} VALUES (%s)", (request.id,))


@app.handler("fragile.sum", effect="none", redelivery=False)
def fragile_sum(payload: dict[str, Any]) -> None:
    """Computes nothing, and must not do so twice."""
    harm(payload["do"])
