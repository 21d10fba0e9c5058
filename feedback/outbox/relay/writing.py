"""Writes what was found out about rows: ends, silence counted anew, and sends to come."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from feedback.outbox.names import in_schema, settled_channel
from feedback.outbox.relay.answers import Ended, Findings
from feedback.postgres import Connection

_SAID: Final = """
SELECT * FROM json_to_recordset(%(said)s::json) AS said
    (n bigint, state text, code text, result jsonb, error text)
"""
# Whoever adds an id while its row ends has a second row of it, whose end is old news.
_ENDED: Final = f"""
WITH said AS ({_SAID}), gone AS (
    DELETE FROM :schema.requests r USING said
    WHERE r.seq = said.n AND r.state IN ('sent', 'unanswered')
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
), inbox AS (
    INSERT INTO :schema.inbox (id, type, sender, state, code, reference, result, error)
    SELECT id, type, sender, state, code, reference, result, error FROM kept WHERE %(inbox)s
    ORDER BY seq
)
SELECT seq, pg_notify(%(channel)s, id) FROM kept
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
_UNANSWERED: Final = """
UPDATE :schema.requests SET state = 'unanswered', next_at = NULL, code = 'no_answer'
WHERE seq = ANY(%s) AND state = 'sent' AND coalesce(next_at <= now(), true)
RETURNING pg_notify(%s, id)
"""


class Written(NamedTuple):
    """What a transaction has changed."""

    gone: set[int]
    """Ends that were news."""
    again: int
    """How many rows are to be sent once more."""


class FindingsWriter:
    """Writes in the caller's transaction."""

    def __init__(self, schema: str, *, inbox: bool) -> None:
        """`inbox`: ends are rows of the table `inbox`, too."""
        self._inbox = inbox
        self._channel = settled_channel(schema)
        self._texts = {
            text: in_schema(text, schema).encode() for text in (_ENDED, _LATER, _AGAIN, _UNANSWERED)
        }

    def write(self, connection: Connection, found: Findings) -> Written:
        """What of it was news. Raises psycopg.Error."""
        gone: set[int] = set()
        again = 0
        if found.ended:
            values = {
                "said": _said(found.ended), "inbox": self._inbox, "channel": self._channel,
            }  # fmt: skip
            gone = {seq for seq, _ in connection.execute(self._texts[_ENDED], values)}
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
        return Written(gone, again)


def _said(ended: list[Ended]) -> str:
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
