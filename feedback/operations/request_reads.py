"""What operators read of the journal.

Connections are in autocommit mode; each function is one or a few statements. Rows are dicts by
column name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from psycopg.rows import dict_row

from feedback.contract.states import State
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.journal.rows import StoredRequest
from feedback.journal.writer import JournalWriter
from feedback.status.status import Status

_log = logging.getLogger("oncepool.journal")

Row: TypeAlias = dict[str, Any]

OPEN: Final = "(state = 'waiting' OR state = 'running')"
"""A condition: it has not ended. Not `finished_at IS NULL`: of that the index knows only in which
ranges of pages there ever was one, which in time are nearly all."""

# An index finds these whatever their age.
_INDEXED = frozenset({State.WAITING, State.RUNNING, State.IN_DOUBT, State.DEAD})
_CONDITIONS = {
    "id": "id = %(id)s",
    "type": "type = %(type)s",
    "types": "type LIKE ANY (%(types)s)",
    "code": "code = %(code)s",
    "key": "key = %(key)s",
    "reference": "reference = %(reference)s",
    "since": f"(finished_at >= %(since)s OR ({OPEN} AND created_at >= %(since)s))",
    "until": "created_at < %(until)s",
    "text": "(position(%(text_bytes)s IN payload) > 0 OR position(%(text)s IN error) > 0)",
}
_LIKE = "{0} LIKE %({0})s"
_PATTERNS = frozenset({"id", "type"})
_FILTERS = frozenset({"state", *_CONDITIONS})
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=30), None)


def list_requests(
    connection: Connection, filters: Mapping[str, Any], limit: int, *, schema: str
) -> list[Row]:
    """At most `limit` rows, those that the journal heard of last first.

    Filters are those of conditions_of(). Payload and headers are left to show_request.
    """
    if filters.get("since") is not None or filters.get("state") in _INDEXED:
        return _list(connection, filters, limit, schema)
    # Nothing but the time of the end is indexed, so a look at the latest comes before one at all.
    for window in _WINDOWS:
        made = None if window is None else datetime.now(UTC) - window
        rows = _list(connection, filters, limit, schema, made_since=made)
        if len(rows) >= limit:
            break
    return rows


def select_ids(connection: Connection, filters: Mapping[str, Any], *, schema: str) -> list[str]:
    """The ids of all rows that list_requests would show, in no order: what a bulk move is about."""
    conditions, values = conditions_of(filters)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(f"{query('select_ids', schema)} {where}", values).fetchall()
    return [name for (name,) in rows]


def show_request(
    connection: Connection, id: str, *, schema: str, most: int | None = None
) -> Row | None:
    """All columns of a row, with its timeline.

    Under `attempts` stand its runs that did not succeed, under `transitions` what operators did,
    the latest `most` of each.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query("show_request", schema), [id]).fetchone()
        if row is None:
            return None
        row["attempts"] = cursor.execute(query("show_attempts", schema), [id, most]).fetchall()
        row["transitions"] = cursor.execute(
            query("show_transitions", schema), [id, most]
        ).fetchall()
        return row


def get_statuses(connection: Connection, ids: Sequence[str], *, schema: str) -> dict[str, Status]:
    """The status that the row of each id stands for; ids without a row are left out.

    So are, with a line in the log, those whose row makes a status that no reader takes, as its
    result is nested too deeply.
    """
    found: dict[str, Status] = {}
    rows = JournalWriter(schema).find(connection.cursor(), ids)
    changed = _last_changes(connection, rows.values(), schema)
    for name, row in rows.items():
        try:
            value = row.status(changed.get(name, row.at)).encode()
            found[name] = Status.decode(value, whole=False)
        except ValueError as problem:
            _log.error("the status of request %s left out: %s", name, problem)
    return found


def _last_changes(
    connection: Connection, rows: Iterable[StoredRequest], schema: str
) -> dict[str, datetime]:
    """Since when those of the rows that have not ended stand as they do, where they ran before."""
    unended = [row for row in rows if row.finished_at is None]
    if not unended:
        return {}
    values = {"ids": [row.id for row in unended], "runs": [row.run for row in unended]}
    found = connection.execute(query("last_changes", schema), values).fetchall()
    made = {row.id: row.created_at for row in unended}
    return {name: max(at, made[name]) for name, at in found if at is not None}


def matches(type: str | None, wanted: str) -> bool:
    """Whether a type is one of those that `*` in a text stands for, as pattern() has it."""
    if type is None or "*" not in wanted:
        return type == wanted
    first, *between, last = wanted.split("*")
    at, end = len(first), len(type) - len(last)
    if at > end or not (type.startswith(first) and type.endswith(last)):
        return False
    # Each as early as it can be leaves most to the others: nothing has to be tried twice.
    for part in between:
        found = type.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def pattern(text: str) -> str:
    """What LIKE takes for a text in which `*` stands for anything."""
    return re.sub(r"([\\%_])", r"\\\1", text).replace("*", "%")


def _list(
    connection: Connection,
    filters: Mapping[str, Any],
    limit: int,
    schema: str,
    *,
    made_since: datetime | None = None,
) -> list[Row]:
    conditions, values = conditions_of(filters)
    if made_since is not None:
        # What ended before was made before, and the index is on the end.
        conditions.append("created_at >= %(made_since)s")
        conditions.append(f"(finished_at >= %(made_since)s OR {OPEN})")
        values["made_since"] = made_since
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    text = f"{query('list_requests', schema)} {where}ORDER BY created_at DESC, id LIMIT %(limit)s"
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(text, {**values, "limit": limit}).fetchall()


def conditions_of(filters: Mapping[str, Any]) -> tuple[list[str], Row]:
    """What stands behind WHERE for filters, and its values.

    Filters, each None or missing where it does not matter: id and type (`*` stands for anything),
    types (several such texts, of which one has to fit), state, code, since (aware datetime: ended
    since, or made since where it has not ended), until (made before it), key (text or bytes),
    reference, text (somewhere in payload or error). Raises ValueError for others.
    """
    unknown = filters.keys() - _FILTERS
    if unknown:
        raise ValueError(f"unknown filters: {', '.join(sorted(unknown))}")
    values = {name: value for name, value in filters.items() if value is not None}
    conditions = [
        _LIKE.format(name) if name in _PATTERNS and "*" in values[name] else text
        for name, text in _CONDITIONS.items()
        if name in values
    ]
    if "state" in values:
        # As text of the statement: only then the planner knows that a partial index fits.
        conditions.append(f"state = '{State(values['state'])}'")
    for name in _PATTERNS & values.keys():
        values[name] = pattern(values[name]) if "*" in values[name] else values[name]
    if "types" in values:
        values["types"] = [pattern(one) for one in values["types"]]
    if isinstance(values.get("key"), str):
        values["key"] = values["key"].encode()
    if "text" in values:
        values["text_bytes"] = values["text"].encode()
    return conditions, values
