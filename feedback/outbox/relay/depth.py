"""How much of an outbox is open, counted at a bounded cost."""

from __future__ import annotations

from typing import Final, NamedTuple

from feedback.outbox.names import SHARDS, in_schema
from feedback.postgres import Connection
from feedback.sql_times import nearest

LONGEST: Final = 2.0
"""Seconds that a statement may take: the producer's database has other things to do."""

# Each part ends at a bound, so that a look costs the same however many rows there are, and is in
# the order of an index: without, the table may be read from an end where there are none of them.
_DEPTH: Final = f"""
SELECT state, n, coalesce(greatest(0, extract(epoch FROM now() - since)), 0)::float8 FROM (
    SELECT 'unsent', (
        SELECT count(*) FROM (
            SELECT FROM :schema.requests WHERE sender = %(sender)s AND state = 'unsent'
            ORDER BY shard, seq LIMIT %(most)s
        ) AS counted
    ), (
        SELECT min(created_at) FROM generate_series(0, %(shards)s - 1) AS parts (part)
        CROSS JOIN LATERAL (
            SELECT {nearest("created_at")} AS created_at FROM :schema.requests
            WHERE sender = %(sender)s AND shard = part AND state = 'unsent'
            ORDER BY seq LIMIT 1
        ) AS first
    )
    UNION ALL
    SELECT 'sent', (
        SELECT count(*) FROM (
            SELECT FROM :schema.requests WHERE sender = %(sender)s AND state = 'sent'
            ORDER BY sent_at, seq LIMIT %(most)s
        ) AS counted
    ), (
        SELECT {nearest("sent_at")} FROM :schema.requests
        WHERE sender = %(sender)s AND state = 'sent'
        ORDER BY sent_at, seq LIMIT 1
    )
    UNION ALL
    SELECT 'dead', count(*), min({nearest("created_at")}) FROM (
        SELECT created_at FROM :schema.requests
        WHERE sender = %(sender)s AND state IN ('unanswered', 'undeliverable')
        ORDER BY seq LIMIT %(most)s
    ) AS counted
) AS found (state, n, since)
"""  # noqa: S608 - of constants


class OutboxDepth(NamedTuple):
    """Rows of one state."""

    state: str
    """unsent, sent (waits for its answer) or dead."""
    number: int
    """At most as many as were to be counted."""
    oldest: float
    """Seconds since the oldest of them was added, or sent; 0 without any."""


def outbox_depth(
    connection: Connection, schema: str, sender: str, *, most: int
) -> list[OutboxDepth]:
    """What is open of one sender. Raises psycopg.Error, also where it takes too long.

    The connection is in autocommit mode.
    """
    with connection.transaction():
        connection.execute(f"SET LOCAL statement_timeout = '{LONGEST}s'".encode())
        values = {"sender": sender, "most": most, "shards": SHARDS}
        found = connection.execute(in_schema(_DEPTH, schema).encode(), values).fetchall()
    return [OutboxDepth(*row) for row in found]
