"""Has rows go through an outbox's tables in sets, which never leave the database.

Each leaves behind what adding, claiming, marking, settling and pruning leave: it comes, is written
once more in place of itself, goes to the finished ones, and goes from there. Only that is the same:
the statements are others, with ten times as many rows in each of them.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime
from typing import Any, Final

import psycopg

from benchmarks.outbox_place import KEYS, SCHEMA, SHARDS_OF_KEYS
from feedback.outbox.names import SHARDS
from feedback.outbox.relay.transactions import transaction
from feedback.postgres import Connection

NEVER_ANSWERED: Final = 10_000
_ADD: Final = f"""
INSERT INTO {SCHEMA}.requests (id, type, sender, key, payload, headers, fingerprint, shard,
    created_at)
SELECT 's' || lpad((%(first)s + n)::text, 15, '0'), r.type, r.sender, convert_to('k' || n %% {KEYS},
    'UTF8'), r.payload, r.headers, r.fingerprint, (%(shards)s::smallint[])[n %% {KEYS} + 1], now()
FROM (SELECT * FROM {SCHEMA}.requests ORDER BY seq LIMIT 1) AS r
CROSS JOIN generate_series(1, %(rows)s) AS n
"""
_MARK: Final = f"""
WITH marked AS (
    UPDATE {SCHEMA}.requests SET state = 'sent', sent_at = now(), sends = sends + 1
    WHERE seq = ANY(ARRAY(
        SELECT seq FROM generate_series(0, {SHARDS - 1}) AS s (shard)
        CROSS JOIN LATERAL (
            SELECT u.seq FROM {SCHEMA}.requests u
            WHERE u.sender = 'default' AND u.shard = s.shard AND u.state = 'unsent'
            ORDER BY u.seq LIMIT (%(each)s::int[])[s.shard + 1] FOR NO KEY UPDATE SKIP LOCKED
        ) AS due
    ))
    RETURNING sent_at
)
SELECT max(sent_at) FROM marked
"""
_END: Final = f"""
WITH gone AS (
    DELETE FROM {SCHEMA}.requests
    WHERE sender = 'default' AND state IN ('sent', 'unanswered') AND sent_at = %(at)s
        AND seq %% {NEVER_ANSWERED} <> 0
    RETURNING *
)
INSERT INTO {SCHEMA}.finished (seq, created_at, sent_at, settled_at, sends, id, type, sender, state,
    code, fingerprint, key)
SELECT seq, created_at, sent_at, now(), sends, id, type, sender, 'done', 'ok', fingerprint, key
FROM gone
"""
_PRUNE: Final = f"DELETE FROM {SCHEMA}.finished WHERE settled_at < %s"


class OutboxSets:
    """So many rows at once, behind a backlog that stands already."""

    def __init__(self, connection: Connection, *, rows: int, keep: int) -> None:
        """`keep`: so many of the finished rows, about, are not pruned."""
        self._connection = connection
        self._rows = rows // KEYS * KEYS
        """As many of each key."""
        of_each = Counter(SHARDS_OF_KEYS)
        self._each = [of_each[shard] * (self._rows // KEYS) for shard in range(SHARDS)]
        self._ends: deque[datetime] = deque(maxlen=max(2, keep // rows))
        self._added = 0
        self.ended = 0
        """Rows that came to their end in here."""

    def round(self) -> None:
        """Adds some, has as many of the oldest sent and ended, and forgets those of long ago."""
        with transaction(self._connection):
            self._run(_ADD, {"first": self._added, "rows": self._rows, "shards": SHARDS_OF_KEYS})
        self._added += self._rows
        with transaction(self._connection):
            [(sent,)] = self._run(_MARK, {"each": self._each}).fetchall()
        with transaction(self._connection):
            self.ended += self._run(_END, {"at": sent}).rowcount
        self._ends.append(sent)
        if len(self._ends) == self._ends.maxlen:
            with transaction(self._connection):
                self._connection.execute(_PRUNE.encode(), [self._ends[0]])

    def _run(self, statement: str, values: dict[str, object]) -> psycopg.Cursor[Any]:
        return self._connection.execute(statement.encode(), values)
