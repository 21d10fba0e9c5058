"""The relay's side of the outbox: takes shards and their rows, and writes what became of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from feedback.outbox.names import SHARDS, in_schema, settled_channel
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import NOT_CONFIRMED, BackingOff, BatchMarks, ClaimedRow, PutOff
from feedback.outbox.relay.reading import as_message
from feedback.outbox.relay.transactions import idle_left, transaction
from feedback.outbox.relay.window import SILENCE, TOO_LATE, window_values
from feedback.outbox.rows import as_json
from feedback.postgres import Connection
from feedback.sql_times import nearest

_SHARDS: Final = """
INSERT INTO :schema.shards (sender, shard) SELECT %s, generate_series(0, %s)
ON CONFLICT DO NOTHING
"""
# The LIMIT inside has each shard looked up in the index: as a semi-join it may read all that waits.
# In the order of shards, so that it ends with the last one that is taken: until autovacuum has been
# there, looking a shard up passes by all of its rows that were sent.
_LOCK: Final = """
SELECT s.shard FROM :schema.shards AS s
CROSS JOIN LATERAL (
    SELECT FROM :schema.requests r
    WHERE r.sender = s.sender AND r.shard = s.shard AND r.state = 'unsent'
        AND (r.next_at IS NULL OR r.next_at <= now())
    ORDER BY r.seq LIMIT 1
) AS due
WHERE s.sender = %s AND s.shard >= %s AND s.shard < %s
ORDER BY s.shard LIMIT %s
FOR UPDATE OF s SKIP LOCKED
"""
# A statement of its own, after the locks: what the last owner of a shard has written is seen.
# The OFFSET has what backs off looked up by its key: as a join, all of it may be read for each row.
# A row without a key has its id for one, which another may have as its key. That is looked up by
# the index on ids, so not with characters beyond ASCII: a key may be any bytes, and no text.
_ROWS: Final = f"""
SELECT seq, id, type, key, payload, headers::text,
    created_at, failures, coalesce({TOO_LATE}, false)
FROM (
    SELECT r.*, sum(octet_length(r.payload)) OVER (ORDER BY r.seq) - octet_length(r.payload)
        AS before
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT * FROM :schema.requests u
        WHERE u.sender = %(sender)s AND u.shard = mine.shard AND u.state = 'unsent'
            AND (u.next_at IS NULL OR u.next_at <= now())
            AND NOT EXISTS (
                SELECT FROM :schema.requests b
                WHERE b.state = 'unsent' AND b.next_at > now() AND b.sender = u.sender
                    AND b.key = coalesce(u.key, convert_to(u.id, 'UTF8')) AND b.seq < u.seq
                OFFSET 0
            )
            AND NOT EXISTS (
                SELECT FROM :schema.requests b
                WHERE b.id = replace(encode(u.key, 'escape'), repeat(chr(92), 2), chr(92))
                    AND b.key IS NULL
                    AND b.state = 'unsent' AND b.next_at > now() AND b.sender = u.sender
                    AND b.seq < u.seq
                OFFSET 0
            )
        ORDER BY u.seq LIMIT %(each)s
    ) AS r
) AS due
WHERE before < %(bytes)s
ORDER BY seq
"""  # noqa: S608 - of constants
_SENT: Final = f"""
UPDATE :schema.requests
SET state = 'sent', sends = sends + 1, tries = tries + 1, failures = 0, sent_at = now(),
    next_at = {nearest("greatest(now(), not_before)")} + make_interval(secs => least(
        {SILENCE} * 2 ^ least(tries, 30), greatest({SILENCE}, %(longest)s))),
    code = NULL, error = NULL
WHERE seq = ANY(%(rows)s) AND state = 'unsent'
"""  # noqa: S608 - of constants
# Answers are looked for by the time of a send. That it is no count of sends lets it go again for as
# long as nobody has confirmed one.
_IN_DOUBT: Final = """
UPDATE :schema.requests SET sent_at = now()
WHERE seq = ANY(%s) AND state = 'unsent' AND sent_at IS NULL
"""
_PUT_OFF: Final = """
UPDATE :schema.requests
SET next_at = now() + make_interval(secs => seconds), code = said.code, error = said.error
FROM json_to_recordset(%s::json) AS said (n bigint, seconds float8, code text, error text)
WHERE seq = n AND state = 'unsent'
"""
# What another relay writes now was due for it, and is passed by: nobody waits for the other here.
_RELEASE: Final = """
UPDATE :schema.requests SET next_at = NULL
WHERE seq = ANY(ARRAY(
    SELECT seq FROM :schema.requests
    WHERE sender = %s AND state = 'unsent' AND next_at > now() AND code = %s
        AND starts_with(error, %s)
    LIMIT %s FOR UPDATE SKIP LOCKED
))
"""
_COUNT_PUT_OFF: Final = """
SELECT count(*) FROM :schema.requests
WHERE sender = %s AND state = 'unsent' AND next_at > now() AND code = %s AND starts_with(error, %s)
"""
# What was sent before, or may have been, may have run all the same: its answer is still waited for.
_REFUSED: Final = """
UPDATE :schema.requests
SET state = CASE WHEN seconds IS NOT NULL THEN state
        WHEN sent_at IS NOT NULL THEN 'unanswered' ELSE 'undeliverable' END,
    failures = failures + 1, next_at = now() + make_interval(secs => seconds), code = said.code,
    error = said.error
FROM json_to_recordset(%s::json) AS said (n bigint, seconds float8, code text, error text)
WHERE seq = n AND state = 'unsent'
RETURNING CASE WHEN state = 'unanswered' THEN pg_notify(%s, id) END
"""
_TOO_LATE: Final = """
UPDATE :schema.requests SET state = 'unanswered', next_at = NULL, code = 'no_answer', error = NULL
WHERE seq = ANY(%s) AND state = 'unsent'
RETURNING pg_notify(%s, id)
"""


_RELEASED: Final = 2_000
"""Rows at once."""


class Bounds(NamedTuple):
    """Of one batch."""

    rows: int = 1_000
    bytes: int = 8 * 1024 * 1024
    shards: int = 16


class RelayDatabase:
    """One relay's connection, for one sender."""

    def __init__(
        self, connection: Connection, schema: str, sender: str, policy: AnswerPolicy | None = None
    ) -> None:
        self._connection = connection
        policy = policy or AnswerPolicy()
        self._window = window_values(policy)
        self._longest = policy.longest
        self._sender = sender
        self._channel = settled_channel(schema)
        self._texts = {
            text: in_schema(text, schema).encode()
            for text in (
                *(_SHARDS, _LOCK, _ROWS, _SENT, _IN_DOUBT, _PUT_OFF, _RELEASE, _REFUSED),
                *(_TOO_LATE, _COUNT_PUT_OFF),
            )
        }
        self._first = 0
        self._read = 0.0

    def prepare(self) -> None:
        """Sees that this sender's shards are there."""
        with self.transaction():
            self._connection.execute(self._texts[_SHARDS], [self._sender, SHARDS - 1])

    def transaction(self) -> AbstractContextManager[object]:
        """In which rows are claimed and marked: its end gives their shards back."""
        return transaction(self._connection)

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

    def claim(self, bounds: Bounds) -> list[ClaimedRow]:
        """Locks some shards that have something to send, and gives their rows in order.

        The first row always, whatever its size. Others' shards are left out, so that any number of
        relays share the work; the next claim begins behind what this one took.
        """
        taken = self._lock(self._first, SHARDS, bounds.shards)
        if self._first and len(taken) < bounds.shards:
            taken += self._lock(0, self._first, bounds.shards - len(taken))
        self._first = (taken[-1] + 1) % SHARDS if taken else 0
        if not taken:
            return []
        self._read = time.monotonic()
        rows = self._connection.execute(
            self._texts[_ROWS],
            {
                "shards": taken,
                "sender": self._sender,
                "each": -(-bounds.rows // len(taken)),
                "bytes": bounds.bytes,
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

    def mark(self, marks: BatchMarks) -> None:
        """Writes what became of the rows, in the transaction of their claim."""
        if marks.sent:
            values = {**self._window, "longest": self._longest, "rows": marks.sent}
            self._connection.execute(self._texts[_SENT], values)
        if marks.in_doubt:
            self._connection.execute(self._texts[_IN_DOUBT], [list(marks.in_doubt)])
        if marks.put_off:
            self._connection.execute(self._texts[_PUT_OFF], [_said(marks.put_off)])
        if marks.refused:
            said = _said(marks.refused)
            self._connection.execute(self._texts[_REFUSED], [said, self._channel])
        if marks.too_late:
            self._connection.execute(self._texts[_TOO_LATE], [list(marks.too_late), self._channel])


def _said(marks: Sequence[BackingOff | PutOff]) -> str:
    return as_json(
        [
            {"n": seq, "seconds": seconds, "code": why.code, "error": why.error}
            for seq, seconds, why in marks
        ]
    )
