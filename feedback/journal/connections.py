"""The journal's connections, and the news on them: a row is due that nobody could foresee."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from feedback.postgres import CONNECT_TIMEOUT, Connection, open_connection

__all__ = [
    "CONNECT_TIMEOUT",
    "Connection",
    "database_now",
    "due_channel",
    "notify_due",
    "open_connection",
]

_LONGEST_CHANNEL: Final = 63  # bytes that PostgreSQL takes


def due_channel(schema: str) -> str:
    """The channel of NOTIFY that says: a row was made due by an operator, a park or a release."""
    name = f"{schema}_due".encode()
    if len(name) > _LONGEST_CHANNEL:
        name = schema.encode()[: _LONGEST_CHANNEL - 4] + b"_due"
    return name.decode(errors="replace")


def notify_due(connection: Connection, *, schema: str) -> None:
    """Wakes the maintenance processes of all instances, when the transaction commits.

    The last statement before that: a COMMIT that notifies waits for all others that do, and no
    lock_timeout may refuse it for them.
    """
    connection.execute(
        "SELECT set_config('lock_timeout', '0', true), pg_notify(%s, '')", [due_channel(schema)]
    )


def database_now(connection: Connection) -> datetime:
    """By the database's clock."""
    [(now,)] = connection.execute("SELECT clock_timestamp()").fetchall()
    said: datetime = now
    return said.astimezone(UTC)
