"""The relay's side of the outbox: takes shards and their rows, and writes what became of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from feedback.message_size import LARGEST_ROW
from feedback.outbox.names import SHARDS, in_schema
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import NOT_CONFIRMED, BatchMarks, ClaimedRow
from feedback.outbox.relay.kept_shards import LockedShard
from feedback.outbox.relay.marking import MarkWriter, SetAside
from feedback.outbox.relay.reading import as_message
from feedback.outbox.relay.transactions import LOCK, idle_left, transaction
from feedback.outbox.relay.window import TOO_LATE, window_values
from feedback.postgres import Connection

_SHARDS: Final = """
INSERT INTO :schema.shards (sender, shard) SELECT %s, generate_series(0, %s)
ON CONFLICT DO NOTHING
"""
_DUE: Final = "u.state = 'unsent' AND (u.next_at IS NULL OR u.next_at <= now())"
# The LIMIT inside has each shard looked up in the index: as a semi-join it may read all that waits.
_DUE_SHARDS: Final = f"""
:schema.shards AS s
CROSS JOIN LATERAL (
    SELECT FROM :schema.requests u
    WHERE u.sender = s.sender AND u.shard = s.shard AND {_DUE}
    ORDER BY u.seq LIMIT 1
) AS due
"""
# In the order of shards, so that it ends with the last one that is taken: until autovacuum has been
# there, looking a shard up passes by all of its rows that were sent.
_LOCK: Final = f"""
SELECT s.shard FROM {_DUE_SHARDS}
WHERE s.sender = %s AND s.shard >= %s AND s.shard < %s
ORDER BY s.shard LIMIT %s
FOR UPDATE OF s SKIP LOCKED
"""  # noqa: S608 - of constants
# Whoever has locked a row for itself stands in it, and has its own id locked as long as it lasts.
_LOCKED: Final = f"""
SELECT s.shard, s.xmax::text, concat_ws(' ', 'pid', l.pid, nullif(a.application_name, ''))
FROM {_DUE_SHARDS}
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = s.xmax
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE s.sender = %s
ORDER BY s.shard
"""  # noqa: S608 - of constants
_BACKING_OFF: Final = """
(CASE WHEN b.state = 'unsent' AND b.next_at IS NOT NULL THEN coalesce(sha256(b.key), '') END)
"""
"""As its index has it: the hash of a row's key, NULL where it does not back off."""
_LANE: Final = "coalesce(key, convert_to(id, 'UTF8'))"
# A statement of its own, after the locks: what the last owner of a shard has written is seen.
# Rows are locked, so that what is sent can be marked. What another transaction has locked is passed
# by, and what is behind it in its lane is told apart. NOT IN is hashed, whatever is expected.
# The first row of each shard is found once: before it is what was sent since autovacuum was there.
# The OFFSET has what backs off looked up by its key: as a join, all of it may be read for each row.
# A row without a key has its id for one, which another may have as its key. That is looked up by
# the index on ids alone, so not with characters beyond ASCII: a key may be any bytes, and no text.
# A row that is larger than any message is given without what makes it so: neither an answer of the
# server nor the memory here need hold that. The length of a payload is known without reading it.
# As a message's, headers have an eighth of the bytes of their JSON at least.
_ROWS: Final = f"""
WITH heads AS MATERIALIZED (
    SELECT mine.shard, due.seq FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT u.seq FROM :schema.requests u
        WHERE u.sender = %(sender)s AND u.shard = mine.shard AND {_DUE}
        ORDER BY u.seq LIMIT 1
    ) AS due
), ours AS MATERIALIZED (
    SELECT r.* FROM heads
    CROSS JOIN LATERAL (
        SELECT u.* FROM :schema.requests u
        WHERE u.sender = %(sender)s AND u.shard = heads.shard AND u.seq >= heads.seq
            AND {_DUE}
            AND NOT EXISTS (
                SELECT FROM :schema.requests b
                WHERE {_BACKING_OFF} = sha256(coalesce(u.key, convert_to(u.id, 'UTF8')))
                    AND b.sender = u.sender AND b.next_at > now() AND b.seq < u.seq
                OFFSET 0
            )
            AND NOT EXISTS (
                SELECT FROM (
                    SELECT * FROM :schema.requests
                    WHERE id = replace(encode(u.key, 'escape'), repeat(chr(92), 2), chr(92))
                    OFFSET 0
                ) AS b
                WHERE b.key IS NULL
                    AND b.state = 'unsent' AND b.next_at > now() AND b.sender = u.sender
                    AND b.seq < u.seq
                OFFSET 0
            )
        ORDER BY u.seq LIMIT %(each)s
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS r
), passed AS (
    SELECT {_LANE} AS lane, min(there.seq) AS first
    FROM (SELECT shard, max(seq) AS last FROM ours GROUP BY shard) AS ends
    JOIN heads USING (shard)
    CROSS JOIN LATERAL (
        SELECT u.id, u.key, u.seq FROM :schema.requests u
        WHERE u.sender = %(sender)s AND u.shard = ends.shard AND u.seq >= heads.seq
            AND u.seq < ends.last AND {_DUE}
        ORDER BY u.seq OFFSET 0
    ) AS there
    WHERE there.seq NOT IN (SELECT seq FROM ours)
    GROUP BY lane
)
SELECT seq, id, CASE WHEN fits THEN type ELSE '' END,
    CASE WHEN octet_length(key) <= %(largest)s THEN key END,
    CASE WHEN fits THEN payload ELSE '' END, CASE WHEN fits THEN header_text ELSE '[]' END,
    created_at, statement_timestamp(), failures, coalesce({TOO_LATE}, false),
    CASE WHEN fits THEN 0 ELSE size END, coalesce(first < seq, false)
FROM (
    SELECT ours.*, header_text, size, fits, sum(read) OVER (ORDER BY seq) - read AS before
    FROM ours
    CROSS JOIN LATERAL (SELECT headers::text AS header_text) AS h
    CROSS JOIN LATERAL (
        SELECT octet_length(payload)::bigint + octet_length(type) + coalesce(octet_length(key), 0)
            + octet_length(header_text) / 8 AS size
    ) AS s
    CROSS JOIN LATERAL (SELECT size <= %(largest)s AS fits) AS f
    CROSS JOIN LATERAL (SELECT CASE WHEN fits THEN size::int ELSE 0 END AS read) AS m
) AS due
LEFT JOIN passed ON lane = coalesce(due.key, convert_to(due.id, 'UTF8'))
WHERE before < %(bytes)s
ORDER BY seq
"""  # noqa: S608 - of constants
# What another relay writes now was due for it, and is passed by: nobody waits for the other here.
_RELEASE: Final = f"""
UPDATE :schema.requests SET next_at = NULL
WHERE seq = ANY(ARRAY(
    SELECT seq FROM :schema.requests b
    WHERE {_BACKING_OFF} IS NOT NULL AND sender = %s AND next_at > now() AND code = %s
        AND starts_with(error, %s)
    LIMIT %s FOR UPDATE SKIP LOCKED
))
"""  # noqa: S608 - of constants
_COUNT_PUT_OFF: Final = f"""
SELECT count(*) FROM :schema.requests b
WHERE {_BACKING_OFF} IS NOT NULL AND sender = %s AND next_at > now() AND code = %s
    AND starts_with(error, %s)
"""  # noqa: S608 - of constants


_RELEASED: Final = 2_000
"""Rows at once."""


class Bounds(NamedTuple):
    """Of one batch."""

    rows: int = 1_000
    bytes: int = 8 * 1024 * 1024
    shards: int = 16
    largest: int = LARGEST_ROW
    """Bytes of a message; a larger row is given without what makes it so."""


class RelayDatabase:
    """One relay's connection, for one sender."""

    def __init__(
        self,
        connection: Connection,
        schema: str,
        sender: str,
        policy: AnswerPolicy | None = None,
        first: int = 0,
    ) -> None:
        """`first`: the shard with which claims begin."""
        self._connection = connection
        policy = policy or AnswerPolicy()
        self._window = window_values(policy)
        self._marks = MarkWriter(schema, policy)
        self._sender = sender
        self._texts = {
            text: in_schema(text, schema).encode()
            for text in (_SHARDS, _LOCK, _LOCKED, _ROWS, _RELEASE, _COUNT_PUT_OFF)
        }
        self.first = first
        """The same of the next claim."""
        self._read = 0.0

    def prepare(self) -> None:
        """Sees that this sender's shards are there."""
        with self.transaction():
            self._connection.execute(self._texts[_SHARDS], [self._sender, SHARDS - 1])

    def transaction(self) -> AbstractContextManager[object]:
        """In which rows are claimed and marked: its end gives their shards back."""
        return transaction(self._connection, LOCK)

    def put_off(self, error: str) -> int:
        """How many rows wait for their time as they were put off with errors that begin so."""
        values = [self._sender, NOT_CONFIRMED, error]
        with self.transaction():
            found = self._connection.execute(self._texts[_COUNT_PUT_OFF], values).fetchone()
        return int(found[0]) if found else 0

    def release(self, error: str) -> int:
        """Has some of these rows sent soon; how many. Those that others write now are passed by."""
        values = [self._sender, NOT_CONFIRMED, error, _RELEASED]
        with self.transaction():
            return self._connection.execute(self._texts[_RELEASE], values).rowcount

    def locked(self) -> list[LockedShard]:
        """Shards that have something due, and that others have locked: nobody waits for them."""
        with self.transaction():
            rows = self._connection.execute(self._texts[_LOCKED], [self._sender]).fetchall()
        return [LockedShard(*row) for row in rows]

    def claim(self, bounds: Bounds) -> list[ClaimedRow]:
        """Locks some shards that have something to send and their rows, and gives these in order.

        The first row always, whatever its size. Others' shards are left out, so that any number of
        relays share the work; the next claim begins behind what this one took. Shards in which all
        waits behind what backs off have nothing: then it goes on with the next ones, once around.
        """
        # Before any shard is locked, as this may have to wait.
        self._marks.begin(self._connection)
        rows: list[ClaimedRow] = []
        for _ in range(0, SHARDS, bounds.shards):
            taken = self._take(bounds.shards)
            if taken:
                rows = self._rows(taken, bounds)
            if rows or len(taken) < bounds.shards:  # fewer are all that there are
                break
        return rows

    def _take(self, most: int) -> list[int]:
        taken = self._lock(self.first, SHARDS, most)
        if self.first and len(taken) < most:
            taken += self._lock(0, self.first, most - len(taken))
        self.first = (taken[-1] + 1) % SHARDS if taken else 0
        return taken

    def _rows(self, taken: list[int], bounds: Bounds) -> list[ClaimedRow]:
        self._read = time.monotonic()
        rows = self._connection.execute(
            self._texts[_ROWS],
            {
                "shards": taken,
                "sender": self._sender,
                "each": -(-bounds.rows // len(taken)),
                "bytes": bounds.bytes,
                "largest": bounds.largest,
                **self._window,
            },
        )
        return [as_message(ClaimedRow(*row)) for row in rows]

    def left(self) -> float:
        """Seconds for which what was claimed is surely ours still.

        A relay that was frozen may have lost it, to another one or to an operator.
        """
        return idle_left(self._read)

    def _lock(self, first: int, end: int, most: int) -> list[int]:
        found = self._connection.execute(self._texts[_LOCK], [self._sender, first, end, most])
        return [shard for (shard,) in found]

    def rehearse(self, rows: Sequence[ClaimedRow]) -> None:
        """Writes that these were sent and takes it back. Raises psycopg.Error where that fails."""
        with self._connection.transaction(force_rollback=True):
            self.mark(BatchMarks([row.seq for row in rows], []))

    def mark(self, marks: BatchMarks) -> list[SetAside]:
        """Writes what became of the rows, in the transaction of their claim.

        Returns those of which it can't be written.
        """
        return self._marks.write(self._connection, marks)
