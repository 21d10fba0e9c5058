"""Dead letters: messages that could not become a request, and dead requests, in one list.

A message is named by its number, a request by its id. What operators do with messages is in
`dead_letter_actions`, with requests in `request_actions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from psycopg.rows import dict_row

from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.dead_message import header_type
from feedback.operations.request_actions import Runs
from feedback.operations.request_reads import Row, pattern, show_request

Kind = Literal["message", "request"]

_LATEST: Final = "ORDER BY at DESC, id, request_id"
_FILTERS: Final = frozenset({"kind", "type", "types", "reason", "since", "search"})


class DeadLetterRef(NamedTuple):
    """One entry of the list: a message's number as text, or a request's id.

    With `run` a request is moved only in that run.
    """

    kind: Kind
    name: str
    at: datetime | None = None
    run: int | None = None

    @property
    def runs(self) -> Runs | None:
        """As request_actions takes it."""
        return None if self.run is None else {self.name: self.run}


def list_dead(
    connection: Connection,
    filters: Mapping[str, Any],
    limit: int,
    *,
    schema: str,
    most_bytes: int | None = None,
) -> list[Row]:
    """At most `limit` entries, the latest first, with the columns of view `dead`.

    Filters, each None or missing where it does not matter: kind, type (`*` stands for anything; a
    message's is what its header says), types (several such texts, of which one has to fit),
    reason, since (aware datetime), search (a text in id, type, reason, detail or payload). With
    `most_bytes` payloads and headers are left out, None, once those of the rows before are so many
    bytes together; `payload_bytes` is the length of each payload.
    """
    text, values = _latest("list_dead", filters, schema)
    if most_bytes is not None:
        text = f"{query('dead_within', schema)} ({text}) listed) summed {_LATEST}"
    with connection.cursor(row_factory=dict_row) as cursor:
        given = {**values, "limit": limit, "most_bytes": most_bytes}
        rows = cursor.execute(text, given).fetchall()
    if most_bytes is not None:
        return _with_told_types(rows)
    return [{**row, "type": row["type"] or header_type(row["headers"])} for row in rows]


def list_dead_heads(
    connection: Connection,
    filters: Mapping[str, Any],
    limit: int,
    *,
    schema: str,
    newest: int | None = None,
) -> list[Row]:
    """As list_dead, without key, headers and payload, and with the end of each detail alone.

    With `newest` only so many of either kind, the latest, are looked at.
    """
    text, values = _latest("list_dead_heads", filters, schema, newest)
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(text, {**values, "limit": limit}).fetchall()
    return _with_told_types(rows)


def _with_told_types(rows: list[Row]) -> list[Row]:
    """The type of a message is what its header says, which the database has looked for."""
    for row in rows:
        told = row.pop("ce_type")
        row["type"] = row["type"] or (told and bytes(told).decode(errors="replace"))
    return rows


def select_dead(
    connection: Connection,
    filters: Mapping[str, Any],
    *,
    schema: str,
    most: int | None = None,
) -> list[DeadLetterRef]:
    """The entries that list_dead would show, the oldest first: all, or at most so many."""
    where, values = _conditions(filters, schema)
    text = f"{query('select_dead', schema)} {where} ORDER BY at, name LIMIT %(most)s"
    return [DeadLetterRef(*row) for row in connection.execute(text, {**values, "most": most})]


def kinds_of(connection: Connection, name: str, *, schema: str) -> list[Kind]:
    """What `name` may be: the number of a message, retried ones too, the id of a dead request."""
    number = int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else None
    values = {"number": number, "name": name}
    return [kind for (kind,) in connection.execute(query("dead_of_name", schema), values)]


def show_dead(connection: Connection, place: DeadLetterRef, *, schema: str) -> Row | None:
    """All that is known of an entry; of a request what show_request says."""
    if place.kind == "request":
        row = show_request(connection, place.name, schema=schema)
        return None if row is None else {"kind": "request", **row}
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query("letters", schema), [[int(place.name)]]).fetchone()
    return None if row is None else {**row, "type": header_type(row["headers"])}


def _latest(
    columns: str, filters: Mapping[str, Any], schema: str, newest: int | None = None
) -> tuple[str, Row]:
    """The latest of both kinds: of each no more are read than of both together are wanted."""
    where, values = _conditions(filters, schema)
    parts = [query(half, schema) for half in ("dead_requests_half", "dead_messages_half")]
    if newest is not None:
        values["newest"] = newest
        parts = [f"({query('newest_dead', schema)} {part} {_LATEST} LIMIT %(newest)s) dead"
                 for part in parts]  # fmt: skip
    halves = (
        f"({query(columns, schema)} FROM {part} {where} {_LATEST} LIMIT %(limit)s)"
        for part in parts
    )
    return f"{' UNION ALL '.join(halves)} {_LATEST} LIMIT %(limit)s", values


def _conditions(filters: Mapping[str, Any], schema: str) -> tuple[str, Row]:
    if unknown := filters.keys() - _FILTERS:
        raise ValueError(f"unknown filters: {', '.join(sorted(unknown))}")
    values = {name: value for name, value in filters.items() if value is not None}
    texts = {
        "kind": "kind = %(kind)s",
        "reason": "reason = %(reason)s",
        "since": "at >= %(since)s",
        # A list of one: both may be given, and each has to fit.
        "type": query("dead_of_types", schema).replace("%(types", "%(type"),
        "types": query("dead_of_types", schema),
        "search": query("dead_with", schema),
    }
    conditions = [texts[name] for name in values]
    if "type" in values:
        values["type"] = [values["type"]]
    for name in values.keys() & {"type", "types"}:
        values[name] = [pattern(one) for one in values[name]]
        values[f"{name}_bytes"] = [one.encode() for one in values[name]]
    if "search" in values:
        values["search_bytes"] = values["search"].encode()
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", values
