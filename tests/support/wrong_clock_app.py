"""An app whose processes' clocks are wrong, by as many seconds as TEST_CLOCK says."""

from __future__ import annotations

import os
import time
from typing import Any

import time_machine

from processing import App, Request, Retry, RetryPolicy

PAUSE = 1.5
"""Seconds."""
ENTRIES = os.open(os.environ["TEST_ENTRIES"], os.O_RDWR | os.O_APPEND | os.O_CREAT)
"""A file that gets id and time of each entry, by the clock that nobody sets."""

app = App()
time_machine.travel(time.time() + float(os.environ["TEST_CLOCK"])).start()


def enter(request: Request[Any]) -> int:
    """Notes it; which entry of the request's it is."""
    os.write(ENTRIES, f"{request.id} {time.monotonic()}\n".encode())
    lines = os.pread(ENTRIES, 1 << 20, 0).decode().splitlines()
    return sum(line.startswith(f"{request.id} ") for line in lines)


@app.handler("shaky", retries=RetryPolicy(attempts=3, base=PAUSE, factor=1, jitter=0))
def shaky(payload: Any, request: Request[Any]) -> None:
    """Fails twice."""
    if enter(request) < 3:
        raise OSError("away")


@app.handler("busy")
def busy(payload: Any, request: Request[Any]) -> None:
    """Cannot be done twice, which does not count."""
    if enter(request) < 3:
        raise Retry(after=PAUSE, counts=False)


@app.handler("pure", effect="none")
async def pure(payload: Any, request: Request[Any]) -> None:
    """As `busy`, beside others and outside of any transaction."""
    if enter(request) < 3:
        raise Retry(after=PAUSE, counts=False)


@app.handler("recount", coalesce=lambda _: "all", window=PAUSE)
def recount(payload: Any, request: Request[Any]) -> None:
    """The last one is enough."""
    enter(request)


@app.handler("order")
def order(payload: Any, request: Request[Any]) -> str:
    """Asks for another one."""
    return request.follow_up("ordered", None)


@app.handler("ordered")
def ordered(payload: Any, request: Request[Any]) -> None:
    """Comes at once."""
    enter(request)
