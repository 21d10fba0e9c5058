"""Writes what became of a batch's rows, also where that can't be written of one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg

from feedback.outbox.names import NOTIFIED_ID, in_schema, settled_channel
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import BackingOff, BatchMarks, PutOff
from feedback.outbox.relay.halves import write_in_halves
from feedback.outbox.relay.plain_text import as_error
from feedback.outbox.relay.window import SILENCE, window_values
from feedback.outbox.rows import as_json
from feedback.postgres import Connection, one_line
from feedback.sql_times import nearest

NOT_MARKED: Final = "not_marked"
"""Code of a row of which it can't be written what became of it."""
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
WHERE seq = ANY(%(rows)s) AND state = 'unsent' AND sent_at IS NULL
"""
# From now on, as the batch's sends may have taken longer than the pause.
_PUT_OFF: Final = """
UPDATE :schema.requests
SET next_at = clock_timestamp() + make_interval(secs => seconds), code = said.code,
    error = said.error
FROM json_to_recordset(%(said)s::json) AS said (n bigint, seconds float8, code text, error text)
WHERE seq = n AND state = 'unsent'
"""
# What was sent before, or may have been, may have run all the same: its answer is still waited for.
_REFUSED: Final = f"""
UPDATE :schema.requests
SET state = CASE WHEN seconds IS NOT NULL THEN state
        WHEN sent_at IS NOT NULL THEN 'unanswered' ELSE 'undeliverable' END,
    failures = failures + 1, next_at = now() + make_interval(secs => seconds), code = said.code,
    error = said.error
FROM json_to_recordset(%(said)s::json) AS said (n bigint, seconds float8, code text, error text)
WHERE seq = n AND state = 'unsent'
RETURNING CASE WHEN state = 'unanswered' THEN pg_notify(%(channel)s, {NOTIFIED_ID}) END
"""  # noqa: S608 - of constants
_TOO_LATE: Final = f"""
UPDATE :schema.requests SET state = 'unanswered', next_at = NULL, code = 'no_answer', error = NULL
WHERE seq = ANY(%(rows)s) AND state = 'unsent'
RETURNING pg_notify(%(channel)s, {NOTIFIED_ID})
"""  # noqa: S608 - of constants
# A dead letter, as what is sent, refused or put off in each turn would have no end. What a broker
# has, or may have, is still to be answered.
_SET_ASIDE: Final = f"""
UPDATE :schema.requests
SET state = CASE WHEN %(sent)s OR sent_at IS NOT NULL THEN 'unanswered' ELSE 'undeliverable' END,
    sent_at = CASE WHEN %(sent)s THEN now() ELSE sent_at END,
    next_at = NULL, code = %(code)s, error = %(error)s
WHERE seq = %(n)s AND state = 'unsent'
RETURNING CASE WHEN state = 'unanswered' THEN pg_notify(%(channel)s, {NOTIFIED_ID}) END
"""  # noqa: S608 - of constants
_MARKED: Final = "state, sends, tries, failures, sent_at, next_at, code, error"
_BEGIN: Final = f"UPDATE :schema.requests SET ({_MARKED}) = ROW({_MARKED}) WHERE false"  # noqa: S608 - of constants
_TEXTS: Final = (_BEGIN, _SENT, _IN_DOUBT, _PUT_OFF, _REFUSED, _TOO_LATE, _SET_ASIDE)

_Values: TypeAlias = Callable[[Sequence[Any]], dict[str, Any]]


class SetAside(NamedTuple):
    """A row that is a dead letter, as what became of it can't be written."""

    seq: int
    why: str


class MarkWriter:
    """Writes in the caller's transaction."""

    def __init__(self, schema: str, policy: AnswerPolicy) -> None:
        self._values = {
            **window_values(policy),
            "longest": policy.longest,
            "channel": settled_channel(schema),
        }
        self._texts = {text: in_schema(text, schema).encode() for text in _TEXTS}

    def begin(self, connection: Connection) -> None:
        """Sees that marks can be written, before anything is sent that has to be marked.

        Asks for the lock of the table that they need, and for the privileges: no row is written.
        Raises psycopg.Error.
        """
        connection.execute(self._texts[_BEGIN])

    def write(self, connection: Connection, marks: BatchMarks) -> list[SetAside]:
        """Returns those of which it can't be written, and which are dead letters instead.

        Raises psycopg.Error where that is about more than one of them.
        """
        kinds: list[tuple[str, Sequence[Any], _Values]] = [
            (_SENT, marks.sent, _rows),
            (_IN_DOUBT, marks.in_doubt, _rows),
            (_PUT_OFF, marks.put_off, _said),
            (_REFUSED, marks.refused, _said),
            (_TOO_LATE, marks.too_late, _rows),
        ]
        return [aside for kind in kinds for aside in self._write(connection, *kind)]

    def _write(
        self, connection: Connection, text: str, rows: Sequence[Any], values_of: _Values
    ) -> list[SetAside]:
        def write(some: Sequence[Any]) -> tuple[()]:
            connection.execute(self._texts[text], {**self._values, **values_of(some)})
            return ()

        _, refused = write_in_halves(connection, rows, write)
        sent = text in (_SENT, _IN_DOUBT)
        return [
            self._set_aside(connection, row if isinstance(row, int) else row.seq, error, sent=sent)
            for row, error in refused
        ]

    def _set_aside(
        self, connection: Connection, seq: int, error: psycopg.Error, *, sent: bool
    ) -> SetAside:
        why = as_error(one_line(error))
        values = {**self._values, "n": seq, "sent": sent, "code": NOT_MARKED, "error": why}
        connection.execute(self._texts[_SET_ASIDE], values)
        return SetAside(seq, why)


def _rows(seqs: Sequence[int]) -> dict[str, Any]:
    return {"rows": list(seqs)}


def _said(marks: Sequence[BackingOff | PutOff]) -> dict[str, Any]:
    said = [
        {"n": seq, "seconds": seconds, "code": why.code, "error": why.error}
        for seq, seconds, why in marks
    ]
    return {"said": as_json(said)}
