"""The hostile app with a payload of a certain shape, which pydantic reads."""

from __future__ import annotations

from pydantic import BaseModel

from tests.support.hostile_app import app

__all__ = ["app"]


class Order(BaseModel):
    """A payload of a certain shape."""

    amount: int


@app.handler("shaped")
def shaped(payload: Order) -> int:
    """Takes nothing else."""
    return payload.amount
