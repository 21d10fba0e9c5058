"""Dead letters: messages that could not become a request, and dead requests, in one list.

A message is named by its number, a request by its id. Requests move in
`request_actions`; here are the list of both, and what an operator does with messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from feedback.contract.envelope import Envelope, read
from feedback.contract.record import Headers
from feedback.contract.states import DeadLetterReason
from feedback.contract.times import moment
from feedback.errors import Malformed
from feedback.journal.connections import Connection, notify_due
from feedback.journal.queries import query
from feedback.journal.rows import headers_json
from feedback.operations.dead_message import DeadMessage, as_record, header_type, message_of
from feedback.operations.expiry import EXPIRED, is_over
from feedback.operations.explanations import Refusal
from feedback.operations.operator_changes import OperatorChange, note_changes
from feedback.operations.request_actions import By, Moved, Runs
from feedback.operations.request_reads import Row, pattern, show_request

Kind = Literal["message", "request"]
DEAD_LETTER: Final = "dead_letter"
"""What stands for the state of a message that is no request."""

_OWN_ID: Final = "give it another one (--id; over HTTP: id)"
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


def retry_letter(
    connection: Connection,
    number: int,
    by: By,
    *,
    id: str | None = None,
    type: str | None = None,
    schema: str,
) -> Moved | Refusal:
    """Makes a waiting request, due at once, of a message, under this id and type where given.

    The request and the mark that the message was retried are one transaction.
    """
    with connection.transaction():
        letter = _lock(connection, number, schema)
        if isinstance(letter, Refusal):
            return letter
        if letter["reason"] == DeadLetterReason.CONFLICT and id is None:
            return _no(number, f"its id belongs to another request: {_OWN_ID}")
        try:
            headers, envelope = _as_request(letter, id, type)
        except Malformed as error:
            return _no(number, f"is still no request: {error}")
        if problem := _unfit(envelope):
            return _no(number, problem)
        moved = _insert(connection, letter, headers, envelope, by, schema)
        if moved is None:
            return _no(number, f"id {envelope.id!r} is taken: {_OWN_ID}")
        connection.execute(query("mark_letter", schema), [moved.id, number])
        notify_due(connection, schema=schema)
        return moved


def resend_letter(
    connection: Connection,
    number: int,
    send: Callable[[DeadMessage], None],
    by: By,
    *,
    schema: str,
) -> Refusal | None:
    """Sends a message to its topic again as it was; `send` returns when the broker has it.

    A crash in between leaves it in the list: sent twice it is still the same message. So does what
    `send` raises.
    """
    with connection.transaction():
        letter = _lock(connection, number, schema)
        if isinstance(letter, Refusal):
            return letter
        if not letter["topic"]:
            return _no(number, f"came from no topic, as a schedule's own: {_OWN_ID} instead")
        try:
            message = message_of(letter)
        except Malformed as error:
            return _no(number, f"can't be sent again: {error}")
        send(message)
        connection.execute(query("mark_letter", schema), [letter["request_id"], number])
        note_changes(connection, [_change(letter, "resend")], by, schema=schema)
    return None


def drop_letters(
    connection: Connection, numbers: Sequence[int], by: By, *, schema: str
) -> list[Refusal]:
    """Deletes messages that were not retried; those that were not there."""
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query("drop_letters", schema), [list(numbers)]).fetchall()
        note_changes(connection, [_change(row, "drop") for row in rows], by, schema=schema)
    gone = {row["id"] for row in rows}
    return [
        Refusal(str(number), None, "there is no such dead letter, or it was retried")
        for number in numbers
        if number not in gone
    ]


def _lock(connection: Connection, number: int, schema: str) -> Row | Refusal:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query("lock_letter", schema), [number]).fetchone()
    if row is None:
        return Refusal(str(number), None, "there is no such dead letter")
    if row["retried_at"] is not None:
        named = f", as request {row['retried_as']}" if row["retried_as"] else ""
        when = row["retried_at"].astimezone(UTC).isoformat(timespec="seconds")
        return _no(number, f"was retried at {when}{named}")
    return row


def _as_request(row: Row, id: str | None, type: str | None) -> tuple[Headers, Envelope]:
    record = as_record(message_of(row), id, type)
    return record[6] or [], read(record)


def _unfit(envelope: Envelope) -> str | None:
    """Why it would be refused at once."""
    if envelope.payload is None:
        return "has no payload: it would be rejected"
    return EXPIRED if is_over(envelope.options.expires_at) else None


def _insert(
    connection: Connection,
    letter: Row,
    headers: Headers,
    envelope: Envelope,
    by: By,
    schema: str,
) -> Moved | None:
    values = {
        **by._asdict(),
        **{name: letter[name] for name in ("topic", "partition", "kafka_offset", "key")},
        "id": envelope.id,
        "type": envelope.type,
        "produced_at": moment(envelope.time),
        "reference": envelope.options.reference,
        "payload": envelope.payload,
        "headers": Jsonb(headers_json(headers), dumps=bytes),
        "not_before": _time(envelope.options.not_before),
    }
    row = connection.execute(query("letter_to_request", schema), values).fetchone()
    return None if row is None else Moved(*row)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


def _no(number: int, reason: str) -> Refusal:
    return Refusal(str(number), DEAD_LETTER, reason)


def _change(row: Row, action: Literal["drop", "resend"]) -> OperatorChange:
    kind = header_type(row["headers"])
    return OperatorChange(
        "dead_letter",
        str(row["id"]),
        None if kind is None else kind.replace("\0", "\ufffd"),
        action,
        row["reason"] if row["request_id"] is None else f"{row['reason']} {row['request_id']}",
    )


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
