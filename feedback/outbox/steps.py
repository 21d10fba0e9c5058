"""What adding requests asks of the database, step by step: statements out, their rows in. Pure.

Connections of any kind take the steps (connections.py), those of asyncio among them.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from feedback.errors import OutboxError, RequestIdInUse, UnknownSender
from feedback.outbox.names import DEFAULT_SENDER, in_schema
from feedback.outbox.rows import OutboxRow, as_json

_TRIES: Final = 3


class Statement(NamedTuple):
    """One statement with at most one parameter, a text, where `%s` stands."""

    sql: str
    parameter: str | None = None


Rows = Sequence[Sequence[Any]]
Steps = Generator[Statement, Rows, list[str]]


_GIVEN: Final = "SELECT json_array_elements_text(CAST(CAST(%s AS text) AS json))"

_SENDERS: Final = "SELECT name FROM :schema.senders ORDER BY name"
_INSERT: Final = """
INSERT INTO :schema.requests (id, type, sender, key, payload, headers, reference, not_before,
    fingerprint, shard, created_at)
SELECT id, type, sender, decode(key, 'base64'), decode(payload, 'base64'), headers, reference,
    not_before, decode(fingerprint, 'hex'), shard, created_at
FROM json_to_recordset(CAST(CAST(%s AS text) AS json)) AS given (n int, id text, type text,
    sender text, key text, payload text, headers jsonb, reference text, not_before timestamptz,
    fingerprint text, shard smallint, created_at timestamptz)
WHERE NOT EXISTS (SELECT FROM :schema.finished WHERE finished.id = given.id)
ORDER BY n
ON CONFLICT (id) DO NOTHING
RETURNING id
"""
_STANDING: Final = f"""
WITH wanted (id) AS ({_GIVEN})
SELECT id, encode(fingerprint, 'hex') FROM :schema.requests JOIN wanted USING (id)
UNION ALL
SELECT id, encode(fingerprint, 'hex') FROM :schema.finished JOIN wanted USING (id)
"""  # noqa: S608 - of constants
# Whoever adds an id while its row ends has it in both tables.
_TYPES: Final = f"""
WITH wanted (id) AS ({_GIVEN})
SELECT type FROM :schema.requests JOIN wanted USING (id)
UNION
SELECT type FROM :schema.finished JOIN wanted USING (id)
"""  # noqa: S608 - of constants
_UNDO: Final = f"DELETE FROM :schema.requests WHERE id IN ({_GIVEN}) RETURNING id"  # noqa: S608


@functools.lru_cache(maxsize=64)
def _in(schema: str, sql: str) -> str:
    return in_schema(sql, schema)


def adding(rows: Sequence[OutboxRow], schema: str) -> Steps:
    """Writes the rows, all or none; their ids, in order.

    An id that the outbox has already is left as it is where it is the same request. Raises
    RequestIdInUse where it is another, UnknownSender.
    """
    left: dict[str, OutboxRow] = {}
    for row in rows:
        if left.setdefault(row.id, row).fingerprint != row.fingerprint:
            raise RequestIdInUse(row.id)
    yield from _check_senders(rows, schema)
    written: list[str] = []
    for _ in range(_TRIES):
        if not left:
            return [row.id for row in rows]
        written += yield from _insert(left, schema)
        if left:
            answer = yield Statement(_in(schema, _STANDING), as_json(list(left)))
            standing: dict[str, str] = {id_: theirs for id_, theirs in answer}  # noqa: C416
            taken = [id_ for id_, theirs in standing.items() if theirs != left[id_].fingerprint]
            if taken:
                yield from _undo(written, schema)
                raise RequestIdInUse(taken[0])
            # What is neither here nor there has just gone: it is tried again.
            left = {id_: row for id_, row in left.items() if id_ not in standing}
    if left:
        yield from _undo(written, schema)
        raise OutboxError(f"the outbox did not take {min(left)!r}: add it again")
    return [row.id for row in rows]


def types_of(id: str, schema: str) -> Steps:
    """The type of the request that the outbox has under an id, open or finished; none: nothing."""
    answer = yield Statement(_in(schema, _TYPES), as_json([id]))
    return [type_ for (type_,) in answer]


def _check_senders(rows: Sequence[OutboxRow], schema: str) -> Generator[Statement, Rows, None]:
    named = {row.sender for row in rows} - {DEFAULT_SENDER}
    if not named:
        return
    known = [name for (name,) in (yield Statement(_in(schema, _SENDERS)))]
    for sender in sorted(named.difference(known)):
        raise UnknownSender(sender, known)


def _insert(left: dict[str, OutboxRow], schema: str) -> Generator[Statement, Rows, list[str]]:
    """Takes out of `left` what could be written; the ids of that."""
    fields = [row.fields | {"n": n} for n, row in enumerate(left.values())]
    answer = yield Statement(_in(schema, _INSERT), as_json(fields))
    written = [id_ for (id_,) in answer]
    for id_ in written:
        del left[id_]
    return written


def _undo(written: list[str], schema: str) -> Generator[Statement, Rows, None]:
    """Takes back what was written: the caller may well commit what else is in the transaction."""
    if written:
        yield Statement(_in(schema, _UNDO), as_json(written))
