"""What adding requests asks of the database, step by step: statements out, their rows in. Pure.

Connections of any kind take the steps (connections.py), those of asyncio among them.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from feedback.errors import RequestIdInUse, UnknownSender
from feedback.outbox.names import DEFAULT_SENDER, in_schema
from feedback.outbox.rows import OutboxRow, as_json


class Statement(NamedTuple):
    """One statement with at most one parameter, a text, where `%s` stands."""

    sql: str
    parameter: str | None = None


Rows = Sequence[Sequence[Any]]
Steps = Generator[Statement, Rows, list[str]]


_GIVEN: Final = "SELECT json_array_elements_text(CAST(CAST(%s AS text) AS json))"

_SENDERS: Final = "SELECT name FROM :schema.senders ORDER BY name"
_ADD: Final = "SELECT :schema.add_requests(CAST(CAST(%s AS text) AS json))"
# Whoever adds an id while its row ends, in a transaction that reads as of its beginning, has it in
# both tables.
_TYPES: Final = f"""
WITH wanted (id) AS ({_GIVEN})
SELECT type FROM :schema.requests JOIN wanted USING (id)
UNION
SELECT type FROM :schema.finished JOIN wanted USING (id)
"""  # noqa: S608 - of constants


@functools.lru_cache(maxsize=64)
def _in(schema: str, sql: str) -> str:
    return in_schema(sql, schema)


def adding(rows: Sequence[OutboxRow], schema: str) -> Steps:
    """Writes the rows, all or none; their ids, in order.

    An id that the outbox has already is left as it is where it is the same request. Raises
    RequestIdInUse where it is another, UnknownSender.
    """
    once: dict[str, OutboxRow] = {}
    for row in rows:
        if once.setdefault(row.id, row).fingerprint != row.fingerprint:
            raise RequestIdInUse(row.id)
    yield from _check_senders(rows, schema)
    if once:
        fields = [row.fields | {"n": n} for n, row in enumerate(once.values())]
        [(taken,)] = yield Statement(_in(schema, _ADD), as_json(fields))
        if taken is not None:
            raise RequestIdInUse(taken)
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
