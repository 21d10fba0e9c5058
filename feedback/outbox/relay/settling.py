"""Reads what became of the requests that were sent, in bulk, and writes it into the outbox."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from feedback.outbox.names import in_schema, settled_channel
from feedback.outbox.relay.answers import AnswerPolicy, Ended, Findings, SentRow, judge
from feedback.postgres import Connection
from feedback.status.store import StatusStore

log = logging.getLogger("oncepool.relay")

PAGE: Final = 1_000

_LOCK: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
_PAGE: Final = """
SELECT seq, id, type, state, encode(fingerprint, 'hex'), seen, sends, tries,
    coalesce(next_at <= now(), true), sent_at < now() - make_interval(secs => %s)
FROM :schema.requests
WHERE sender = %s AND state IN ('sent', 'unanswered') AND seq > %s
ORDER BY seq LIMIT %s
"""
_SAID: Final = """
SELECT * FROM json_to_recordset(%(said)s::json) AS said
    (n bigint, state text, code text, result jsonb, error text)
"""
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
), inbox AS (
    INSERT INTO :schema.inbox (id, type, sender, state, code, reference, result, error)
    SELECT id, type, sender, state, code, reference, result, error FROM gone WHERE %(inbox)s
    ORDER BY seq
)
SELECT seq, pg_notify(%(channel)s, id) FROM gone
"""  # noqa: S608 - of constants
_LATER: Final = """
UPDATE :schema.requests
SET next_at = now() + make_interval(secs => seconds), seen = said.seen, tries = 0
FROM json_to_recordset(%s::json) AS said (n bigint, seconds float8, seen text)
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


class Settling:
    """Passes over what one sender's rows wait for."""

    def __init__(
        self,
        schema: str,
        sender: str,
        store: StatusStore,
        policy: AnswerPolicy,
        *,
        inbox: bool,
        settled: Callable[[Ended], object] | None = None,
    ) -> None:
        """`settled` is called after the commit, at most once for each end."""
        self._sender = sender
        self._store = store
        self._policy = policy
        self._inbox = inbox
        self._settled = settled
        self._lock = f"oncepool outbox answers of {schema} {sender}"
        self._channel = settled_channel(schema)
        self._texts = {
            text: in_schema(text, schema).encode()
            for text in (_PAGE, _ENDED, _LATER, _AGAIN, _UNANSWERED)
        }
        self._after = 0
        self.ended = 0
        """Ends that were written here."""

    def page(self, connection: Connection) -> bool:
        """Looks at the next rows; False where the pass is over, or another relay is at it.

        Raises StoreUnavailable, psycopg.Error.
        """
        with connection.transaction():
            [(mine,)] = connection.execute(_LOCK, [self._lock]).fetchall()
            rows = self._rows(connection) if mine else []
            if not rows:
                self._after = 0
                return False
            statuses = self._store.read([row.id for row in rows])
            found = judge(rows, statuses, self._policy, datetime.now(UTC))
            gone = self._write(connection, found)
        self._after = rows[-1].seq if len(rows) == PAGE else 0
        self.ended += len(gone)
        if self._settled is not None:
            for ended in found.ended:
                if ended.seq in gone:
                    self._tell(self._settled, ended)
        return self._after > 0

    def _tell(self, settled: Callable[[Ended], object], ended: Ended) -> None:
        try:
            settled(ended)
        except Exception:
            log.exception("request %s has ended, and the callback failed", ended.id)

    def _rows(self, connection: Connection) -> list[SentRow]:
        arguments = [self._policy.window, self._sender, self._after, PAGE]
        return [SentRow._make(row) for row in connection.execute(self._texts[_PAGE], arguments)]

    def _write(self, connection: Connection, found: Findings) -> set[int]:
        """Returns which of the ends were news."""
        gone: set[int] = set()
        if found.ended:
            values = {
                "said": _said(found.ended), "inbox": self._inbox, "channel": self._channel,
            }  # fmt: skip
            gone = {seq for seq, _ in connection.execute(self._texts[_ENDED], values)}
        if found.later:
            later = json.dumps([{"n": n, "seconds": s, "seen": v} for n, s, v in found.later])
            connection.execute(self._texts[_LATER], [later])
        if found.again:
            connection.execute(self._texts[_AGAIN], [found.again])
        if found.unanswered:
            connection.execute(self._texts[_UNANSWERED], [found.unanswered, self._channel])
        return gone


def _said(ended: list[Ended]) -> str:
    return json.dumps(
        [
            {
                "n": one.seq,
                "state": one.state,
                "code": one.code,
                "result": one.result,
                "error": None if one.error is None else one.error.replace("\0", "\ufffd"),
            }
            for one in ended
        ]
    )
