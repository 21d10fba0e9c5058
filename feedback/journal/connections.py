"""Connections to the journal's database: the one place that opens them, and the news on them.

The news is that a row is due now which the maintenance processes could not foresee.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import psycopg

Connection: TypeAlias = psycopg.Connection[Any]

CONNECT_TIMEOUT: Final = 5
"""Seconds."""
_LONGEST_CHANNEL: Final = 63  # bytes that PostgreSQL takes


def open_connection(
    url: str,
    name: str,
    *,
    timeouts: Mapping[str, float] | None = None,
    prepare_threshold: int | None = None,
    connect_timeout: int = CONNECT_TIMEOUT,
) -> Connection:
    """A connection in autocommit mode. Raises psycopg.OperationalError.

    `name` is what pg_stat_activity shows. `timeouts` are settings of the session in seconds, as
    lock_timeout; 0 = none. `prepare_threshold` is how often a statement runs before the server
    keeps it, plan included; None = never, as plans made while tables were empty are bad later.
    """
    connection = psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=prepare_threshold,
        connect_timeout=connect_timeout,
        application_name=name,
        # A peer that is gone without a word is noticed after half a minute: while nothing is under
        # way by keepalives, and while it has not confirmed what was sent, when the kernel sends no
        # keepalives but the same again for a quarter of an hour, by the time-out.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=30_000,
    )
    try:
        for setting, seconds in (timeouts or {}).items():
            connection.execute(
                "SELECT set_config(%s, %s, false)", [setting, f"{int(seconds * 1000)}ms"]
            )
    except BaseException:
        connection.close()
        raise
    return connection


def due_channel(schema: str) -> str:
    """The channel of NOTIFY that says: a row was made due by an operator, a park or a release."""
    name = f"{schema}_due".encode()
    if len(name) > _LONGEST_CHANNEL:
        name = schema.encode()[: _LONGEST_CHANNEL - 4] + b"_due"
    return name.decode(errors="replace")


def notify_due(connection: Connection, *, schema: str) -> None:
    """Wakes the maintenance processes of all instances, when the transaction commits."""
    connection.execute("SELECT pg_notify(%s, '')", [due_channel(schema)])
