"""The fragile app with a payload of a certain shape, which pydantic reads."""

from __future__ import annotations

from typing import Any

import psycopg
from pydantic import BaseModel, field_validator

from processing import Request
from tests.support.fragile_app import app, harm

__all__ = ["app"]


class Read(BaseModel):
    """A payload that does harm where it is read."""

    table: str
    do: str

    @field_validator("do")
    @classmethod
    def _look(cls, do: str) -> str:
        harm(do)
        return do


@app.handler("fragile.read", timeout=1.0)
def fragile_read(payload: Read, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Leaves one row."""
    tx.execute(f"INSERT INTO {payload.table} VALUES (%s)", (request.id,))
