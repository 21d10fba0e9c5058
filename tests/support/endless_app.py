"""An app whose every time is longer than any calendar."""

from __future__ import annotations

from typing import Any

from processing import App, Done, Request, Retry, RetryPolicy

SECONDS = 1e15
"""More than 30 million years."""

app = App()


@app.handler("shaky", retries=RetryPolicy(attempts=3, base=SECONDS))
def shaky(payload: Any) -> None:
    """Fails."""
    raise OSError("away")


@app.handler("pure", effect="none", timeout=SECONDS, retries=RetryPolicy(attempts=3, base=SECONDS))
async def pure(payload: Any) -> None:
    """Fails, beside others."""
    raise OSError("away")


@app.handler("busy", max_timeout=SECONDS)
def busy(payload: Any) -> None:
    """Can't be done now."""
    raise Retry(after=SECONDS)


@app.handler("recount", coalesce=lambda _: "all", window=SECONDS)
def recount(payload: Any) -> None:
    """The last one is enough."""


@app.handler("order", timeout=SECONDS)
def order(payload: Any, tx: Any) -> None:
    """Takes its time."""
    tx.execute("SELECT pg_sleep(0)")


def found(request: Request[Any]) -> Done:
    """What became of a call."""
    return Done()


@app.handler("call", effect="external", check=found, timeout=SECONDS)
def call(payload: Any) -> None:
    """Calls elsewhere."""


@app.handler("acall", effect="external", timeout=SECONDS, max_timeout=SECONDS)
async def acall(payload: Any) -> None:
    """Calls elsewhere, beside others."""
