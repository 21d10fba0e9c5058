"""A handler that keeps nearly all memory that its worker may have, beside one with effects."""

from __future__ import annotations

from typing import Any

import psycopg

from processing import App, Request

app = App()
_KEPT: list[bytearray] = []
MIB = 1024 * 1024


@app.handler("hoard")
def hoard(payload: dict[str, Any]) -> int:
    """Leaves `payload["free"]` bytes, all told."""
    for piece in (4 * MIB, MIB // 4):
        try:
            while True:
                _KEPT.append(bytearray(piece))
        except MemoryError:
            pass
    left = 0
    while left < payload["free"]:
        left += len(_KEPT.pop())
    return left


@app.handler("order")
def order(payload: dict[str, Any], tx: psycopg.Cursor, request: Request) -> str:
    tx.execute(f"INSERT INTO {payload['table']} (id) VALUES (%s)".encode(), [request.id])
    return "ordered"
