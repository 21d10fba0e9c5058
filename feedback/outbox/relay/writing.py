"""Writes what was found out about rows: ends, silence counted anew, and sends to come."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import psycopg

from feedback.outbox.names import CONFLICT, NOTIFIED_ID, in_schema, settled_channel
from feedback.outbox.relay.answers import Ended, Findings
from feedback.outbox.relay.halves import write_in_halves
from feedback.outbox.relay.plain_text import as_error, in_ascii
from feedback.outbox.relay.records import LeftOut
from feedback.postgres import Connection, one_line

log = logging.getLogger("oncepool.relay")

_SAID: Final = """
SELECT * FROM json_to_recordset(%(said)s::json) AS said
    (n bigint, state text, code text, result jsonb, error text)
"""
_WAITS: Final = """
r.seq = said.n
    AND (r.state IN ('sent', 'unanswered') OR r.state = 'unsent' AND r.sent_at IS NOT NULL)
"""
# What another transaction has locked is passed by, and keeps no other from being written.
_LOCK: Final = "SELECT seq FROM :schema.requests WHERE seq = ANY(%s) FOR UPDATE SKIP LOCKED"
# Whoever adds an id while its row ends may have a second row of it: in a transaction that reads as
# of its beginning, or with a version that has no add_requests(). Of the same request its end is old
# news. Another one is a conflict, whatever was said: the consumers know one request by this id.
_ENDED: Final = f"""
WITH said AS ({_SAID}), refused AS (
    UPDATE :schema.requests r
    SET state = 'undeliverable', code = '{CONFLICT}', next_at = NULL,
        error = 'another request has ended under this id; of this one was said: ' || said.state
            || coalesce('/' || said.code, '')
    FROM said, :schema.finished f
    WHERE {_WAITS} AND f.id = r.id AND f.fingerprint <> r.fingerprint
    RETURNING r.seq, r.id, r.type, r.sender, r.state, r.code, r.reference, r.error
), gone AS (
    DELETE FROM :schema.requests r USING said
    WHERE {_WAITS} AND NOT EXISTS (
        SELECT FROM :schema.finished f WHERE f.id = r.id AND f.fingerprint <> r.fingerprint)
    RETURNING r.seq, r.created_at, r.sent_at, r.sends, r.id, r.type, r.sender, said.state,
        said.code, r.fingerprint, r.key, r.reference, said.result, said.error
), kept AS (
    INSERT INTO :schema.finished (seq, created_at, sent_at, settled_at, sends, id, type, sender,
        state, code, fingerprint, key, reference, result, error)
    SELECT seq, created_at, sent_at, now(), sends, id, type, sender, state, code, fingerprint, key,
        reference, result, error
    FROM gone
    ON CONFLICT (id) DO NOTHING
    RETURNING *
), news AS (
    SELECT seq, id, type, sender, state, code, reference, result, error, NULL AS refused FROM kept
    UNION ALL
    SELECT seq, id, type, sender, state, code, reference, NULL, error, error FROM refused
), inbox AS (
    INSERT INTO :schema.inbox (id, type, sender, state, code, reference, result, error)
    SELECT id, type, sender, state, code, reference, result, error FROM news WHERE %(inbox)s
    ORDER BY seq
)
SELECT seq, refused, pg_notify(%(channel)s, {NOTIFIED_ID}) FROM news
"""  # noqa: S608 - of constants
_LATER: Final = """
UPDATE :schema.requests
SET next_at = now() + make_interval(secs => seconds), seen = said.seen, tries = 0,
    not_before = greatest(not_before, now() + make_interval(secs => waits))
FROM json_to_recordset(%s::json) AS said (n bigint, seconds float8, seen text, waits float8)
WHERE seq = n AND state = 'sent'
"""
_AGAIN: Final = """
UPDATE :schema.requests SET state = 'unsent', next_at = NULL
WHERE seq = ANY(%s) AND state = 'sent' AND coalesce(next_at <= now(), true)
"""
_UNANSWERED: Final = f"""
UPDATE :schema.requests SET state = 'unanswered', next_at = NULL, code = 'no_answer'
WHERE seq = ANY(%s) AND state = 'sent' AND coalesce(next_at <= now(), true)
RETURNING pg_notify(%s, {NOTIFIED_ID})
"""  # noqa: S608 - of constants


class Written(NamedTuple):
    """What a transaction has changed."""

    gone: list[Ended]
    """Ends that were news, as they were written."""
    again: int
    """How many rows are to be sent once more."""
    locked: frozenset[int]
    """Rows of which nothing was written, as another transaction has locked them."""


class FindingsWriter:
    """Writes in the caller's transaction."""

    def __init__(self, schema: str, *, inbox: bool) -> None:
        """`inbox`: ends are rows of the table `inbox`, too."""
        self._inbox = inbox
        self._refused = LeftOut()
        self._channel = settled_channel(schema)
        self._texts = {
            text: in_schema(text, schema).encode()
            for text in (_LOCK, _ENDED, _LATER, _AGAIN, _UNANSWERED)
        }

    def write(self, connection: Connection, found: Findings) -> Written:
        """What of it was news, of rows that nobody else has locked.

        An end that the outbox can't take is written without its result. Raises psycopg.Error where
        that is about more than one end.
        """
        wanted = found.rows()
        free = self._lock(connection, wanted) if wanted else frozenset()
        found = found.of(free)
        gone = self._ends(connection, found.ended) if found.ended else []
        again = 0
        if found.later:
            later = [
                {"n": one.seq, "seconds": one.seconds, "seen": one.seen, "waits": one.waits}
                for one in found.later
            ]
            connection.execute(self._texts[_LATER], [json.dumps(later)])
        if found.again:
            again = connection.execute(self._texts[_AGAIN], [found.again]).rowcount
        if found.unanswered:
            connection.execute(self._texts[_UNANSWERED], [found.unanswered, self._channel])
        return Written(gone, again, wanted - free)

    def _lock(self, connection: Connection, rows: frozenset[int]) -> frozenset[int]:
        """Those that are this transaction's from now on."""
        found = connection.execute(self._texts[_LOCK], [sorted(rows)]).fetchall()
        return frozenset(seq for (seq,) in found)

    def _ends(self, connection: Connection, ended: list[Ended]) -> list[Ended]:
        """What was news. In halves where they can't be written together."""
        gone, refused = self._written(connection, ended)
        for one, error in refused:
            gone += self._end_plainly(connection, one, error)
        return gone

    def _end_plainly(
        self, connection: Connection, ended: Ended, error: psycopg.Error
    ) -> list[Ended]:
        """Without its result. What is refused all the same stays open, and keeps no other."""
        why = one_line(error)
        if number := self._refused.count():
            log.warning("%d answers can't be kept, last that of %s: %s", number, ended.id, why)
        said = f"the answer can't be kept in this database: {why}"
        text = said if ended.error is None else f"{said}; its error: {ended.error}"
        plain = ended._replace(code=in_ascii(ended.code), result=None, error=as_error(text))
        gone, _ = self._written(connection, [plain])
        return gone

    def _written(
        self, connection: Connection, ended: Sequence[Ended]
    ) -> tuple[list[Ended], list[tuple[Ended, psycopg.Error]]]:
        return write_in_halves(connection, ended, lambda some: self._write_ends(connection, some))

    def _write_ends(self, connection: Connection, ended: Sequence[Ended]) -> list[Ended]:
        values = {"said": _said(ended), "inbox": self._inbox, "channel": self._channel}
        found = connection.execute(self._texts[_ENDED], values).fetchall()
        news = {seq: refused for seq, refused, _ in found}
        return [_news(one, news[one.seq]) for one in ended if one.seq in news]


def _news(said: Ended, refused: str | None) -> Ended:
    """As it was written."""
    if refused is None:
        return said
    return said._replace(state="undeliverable", code=CONFLICT, result=None, error=refused)


def _said(ended: Sequence[Ended]) -> str:
    return json.dumps(
        [
            {
                "n": one.seq,
                "state": one.state,
                "code": one.code.replace("\0", "\ufffd"),
                "result": one.result,
                "error": None if one.error is None else one.error.replace("\0", "\ufffd"),
            }
            for one in ended
        ]
    )
