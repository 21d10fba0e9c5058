"""An app that takes anything it may be given. Run by real workers beside generated messages."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from processing import App

app = App()


class Amount(BaseModel):
    """A payload of a certain shape."""

    amount: int


@app.handler("pure")
def pure(payload: Any) -> None:
    """Takes any JSON."""


@app.handler("raw")
def raw(payload: bytes) -> None:
    """Takes any bytes."""


@app.handler("shaped")
def shaped(payload: Amount) -> int:
    """Takes one shape."""
    return payload.amount
