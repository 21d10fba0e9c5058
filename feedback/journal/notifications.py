"""The notification that wakes maintenance: a row is due now that it could not foresee."""

from __future__ import annotations

from typing import Any, Final

import psycopg

_LONGEST_CHANNEL: Final = 63  # bytes that PostgreSQL takes


def due_channel(schema: str) -> str:
    """The channel of NOTIFY that says: a row was made due by an operator, a park or a release."""
    name = f"{schema}_due".encode()
    if len(name) > _LONGEST_CHANNEL:
        name = schema.encode()[: _LONGEST_CHANNEL - 4] + b"_due"
    return name.decode(errors="replace")


def notify_due(connection: psycopg.Connection[Any], *, schema: str) -> None:
    """Wakes the maintenance processes of all instances, when the transaction commits."""
    connection.execute("SELECT pg_notify(%s, '')", [due_channel(schema)])
