"""What of the journal waits for its time or for somebody, counted at a bounded cost."""

from __future__ import annotations

from typing import Final, NamedTuple

import psycopg

from feedback.journal.connections import Connection
from feedback.journal.queries import query

LONGEST: Final = "2s"
"""What a look may take: whoever looks has more urgent things to do."""


class OpenRows(NamedTuple):
    """Rows of one sort."""

    what: str
    """waiting, due, in_doubt, dead or dead_letter."""
    number: int
    """At most as many as were to be counted."""
    oldest: float | None
    """Seconds for which the oldest of them is due, in doubt, dead or stored; 0.0 without any, None
    where that means nothing."""


def open_rows(connection: Connection, *, schema: str, most: int) -> list[OpenRows] | None:
    """Counts at most `most` rows of each sort; None where that takes too long.

    The connection is in autocommit mode. Raises psycopg.Error where the database is away.
    """
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = '{LONGEST}'".encode())
            # Planned each time: what is rare today may be most of the table tomorrow.
            cursor = connection.execute(query("open_rows", schema), {"most": most}, prepare=False)
            return [OpenRows(*row) for row in cursor.fetchall()]
    except psycopg.errors.QueryCanceled:
        return None
