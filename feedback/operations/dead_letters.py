"""Dead letters: messages that could not become a request, and dead requests, in one list.

A message is named by its number, a request by its id. Requests move in `transitions`;
here are the list of both, and what an operator does with messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from feedback.contract.cloudevents import is_structured, unfold
from feedback.contract.envelope import Envelope, read
from feedback.contract.payloads import parse_json, write_json
from feedback.contract.record import Headers, Record
from feedback.contract.states import DeadLetterReason
from feedback.contract.times import moment
from feedback.errors import Malformed
from feedback.journal.connections import Connection, notify_due
from feedback.journal.queries import query
from feedback.journal.rows import headers_json, stored_headers
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By, Moved, Runs
from feedback.operations.request_reads import SCHEMA, Row, pattern, show_request

Kind = Literal["message", "request"]
DEAD_LETTER: Final = "dead_letter"
"""What stands for the state of a message that is no request."""

_LATEST: Final = "ORDER BY at DESC, id, request_id"
_FILTERS: Final = frozenset({"kind", "type", "reason", "since", "search"})


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


class DeadMessage(NamedTuple):
    """A message as it came."""

    topic: str
    partition: int
    offset: int
    produced_at: datetime
    key: bytes | None
    headers: Headers
    value: bytes | None


def list_dead(
    connection: Connection,
    filters: Mapping[str, Any],
    limit: int,
    *,
    schema: str = SCHEMA,
    most_bytes: int | None = None,
) -> list[Row]:
    """At most `limit` entries, the latest first, with the columns of view `dead`.

    Filters, each None or missing where it does not matter: kind, type (`*` stands for anything; a
    message's is what its header says), reason, since (aware datetime), search (a text in id, type,
    reason, detail or payload). With `most_bytes` payloads are left out, None, once those of the
    rows before are so many bytes together; `payload_bytes` is the length of each.
    """
    where, values = _conditions(filters)
    text = f"{query('list_dead', schema)} {where} {_LATEST} LIMIT %(limit)s"
    if most_bytes is not None:
        text = f"{query('dead_within', schema)} ({text}) listed) summed {_LATEST}"
    with connection.cursor(row_factory=dict_row) as cursor:
        given = {**values, "limit": limit, "most_bytes": most_bytes}
        rows = cursor.execute(text, given).fetchall()
    return [{**row, "type": row["type"] or _type_of(row["headers"])} for row in rows]


def list_dead_heads(
    connection: Connection, filters: Mapping[str, Any], limit: int, *, schema: str = SCHEMA
) -> list[Row]:
    """As list_dead, without key, headers and payload, and with the end of each detail alone."""
    where, values = _conditions(filters)
    text = f"{query('list_dead_heads', schema)} {where} {_LATEST} LIMIT %(limit)s"
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(text, {**values, "limit": limit}).fetchall()
    for row in rows:
        told = row.pop("ce_type")
        row["type"] = row["type"] or (told and bytes(told).decode(errors="replace"))
    return rows


def select_dead(
    connection: Connection,
    filters: Mapping[str, Any],
    *,
    schema: str = SCHEMA,
    most: int | None = None,
) -> list[DeadLetterRef]:
    """The entries that list_dead would show, the oldest first: all, or at most so many."""
    where, values = _conditions(filters)
    text = f"{query('select_dead', schema)} {where} ORDER BY at, name LIMIT %(most)s"
    return [DeadLetterRef(*row) for row in connection.execute(text, {**values, "most": most})]


def kinds_of(connection: Connection, name: str, *, schema: str = SCHEMA) -> list[Kind]:
    """What `name` may be: the number of a message, retried ones too, the id of a dead request."""
    number = int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else None
    values = {"number": number, "name": name}
    return [kind for (kind,) in connection.execute(query("dead_of_name", schema), values)]


def show_dead(connection: Connection, place: DeadLetterRef, *, schema: str = SCHEMA) -> Row | None:
    """All that is known of an entry; of a request what show_request says."""
    if place.kind == "request":
        row = show_request(connection, place.name, schema=schema)
        return None if row is None else {"kind": "request", **row}
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query("letters", schema), [[int(place.name)]]).fetchone()
    return None if row is None else {**row, "type": _type_of(row["headers"])}


def retry_letter(
    connection: Connection,
    number: int,
    by: By,
    *,
    id: str | None = None,
    type: str | None = None,
    schema: str = SCHEMA,
) -> Moved | Refusal:
    """Makes a waiting request, due at once, of a message, under this id and type where given.

    The request and the mark that the message was retried are one transaction.
    """
    with connection.transaction():
        letter = _lock(connection, number, schema)
        if isinstance(letter, Refusal):
            return letter
        if letter["reason"] == DeadLetterReason.CONFLICT and id is None:
            return _no(number, "its id belongs to another request: give it one with --id")
        try:
            headers, envelope = _as_request(letter, id, type)
        except Malformed as error:
            return _no(number, f"is still no request: {error}")
        if problem := _unfit(envelope):
            return _no(number, problem)
        moved = _insert(connection, letter, headers, envelope, by, schema)
        if moved is None:
            return _no(number, f"id {envelope.id!r} is taken: give it another one with --id")
        connection.execute(query("mark_letter", schema), [moved.id, number])
        notify_due(connection, schema=schema)
        return moved


def resend_letter(
    connection: Connection,
    number: int,
    send: Callable[[DeadMessage], None],
    *,
    schema: str = SCHEMA,
) -> Refusal | None:
    """Sends a message to its topic again as it was; `send` returns when the broker has it.

    A crash in between leaves it in the list: sent twice it is still the same message.
    """
    with connection.transaction():
        letter = _lock(connection, number, schema)
        if isinstance(letter, Refusal):
            return letter
        send(_letter(letter))
        connection.execute(query("mark_letter", schema), [letter["request_id"], number])
    return None


def drop_letters(
    connection: Connection, numbers: Sequence[int], *, schema: str = SCHEMA
) -> list[Refusal]:
    """Deletes messages that were not retried; those that were not there."""
    rows = connection.execute(query("drop_letters", schema), [list(numbers)]).fetchall()
    gone = {number for (number,) in rows}
    return [
        Refusal(str(number), None, "there is no such dead letter, or it was retried")
        for number in numbers
        if number not in gone
    ]


def type_to_run(row: Row) -> str | None:
    """The type as which a message would run; None where it would only run as another one.

    A structured event's is the one in its body, whatever its header says.
    """
    headers = dict(stored_headers(row["headers"]))
    if is_structured(headers.get("content-type")):
        try:
            # With an id, as whoever retries it may give it one.
            headers, _ = unfold(headers, _renamed(row["payload"], "id", None))
        except Malformed:
            return None
    value = headers.get("ce_type")
    return value.decode(errors="replace") if value else None


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


def _letter(row: Row) -> DeadMessage:
    return DeadMessage(
        row["topic"], row["partition"], row["kafka_offset"], row["produced_at"], row["key"],
        stored_headers(row["headers"]), row["payload"],
    )  # fmt: skip


def _as_request(row: Row, id: str | None, type: str | None) -> tuple[Headers, Envelope]:
    record = as_record(_letter(row), id, type)
    return record[6] or [], read(record)


def _unfit(envelope: Envelope) -> str | None:
    """Why it would be refused at once."""
    if envelope.payload is None:
        return "has no payload: it would be rejected"
    expires_at = envelope.options.expires_at
    if expires_at is not None and expires_at <= datetime.now(UTC).timestamp():
        return "its ce_expirytime is over: it would be rejected. Submit it anew"
    return None


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


def _type_of(headers: Any) -> str | None:
    for name, value in stored_headers(headers):
        if name == "ce_type" and value:
            return value.decode(errors="replace")
    return None


def _conditions(filters: Mapping[str, Any]) -> tuple[str, Row]:
    if unknown := filters.keys() - _FILTERS:
        raise ValueError(f"unknown filters: {', '.join(sorted(unknown))}")
    values = {name: value for name, value in filters.items() if value is not None}
    texts = {
        "kind": "kind = %(kind)s",
        "reason": "reason = %(reason)s",
        "since": "at >= %(since)s",
        "type": query("dead_of_type", SCHEMA),
        "search": query("dead_with", SCHEMA),
    }
    conditions = [texts[name] for name in values]
    if "type" in values:
        values["type"] = pattern(values["type"])
        values["type_bytes"] = values["type"].encode()
    if "search" in values:
        values["search_bytes"] = values["search"].encode()
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", values


def as_record(letter: DeadMessage, id: str | None, type: str | None) -> Record:
    """The message in binary mode, with this id and type where they are given.

    Raises Malformed where a structured event can't be unfolded.
    """
    headers, value = letter.headers, letter.value
    if is_structured(dict(headers).get("content-type")):
        unfolded, value = unfold(dict(headers), _renamed(value, id, type))
        headers = list(unfolded.items())
    for name, given in (("ce_type", type), ("ce_id", id)):
        if given is not None:
            others = [pair for pair in headers if pair[0] != name]
            headers = [(name, given.encode()), *others]
    timestamp = round(letter.produced_at.timestamp() * 1000)
    return (
        letter.topic, letter.partition, letter.offset, timestamp, letter.key, value, headers,
        None, None,
    )  # fmt: skip


def _renamed(value: bytes | None, id: str | None, type: str | None) -> bytes | None:
    """A structured event with its id and type set; what is no event stays as it is."""
    try:
        event = parse_json(value or b"")
    except ValueError:
        return value
    if not isinstance(event, dict):
        return value
    given = {"id": id, "type": type}
    return write_json(event | {name: text for name, text in given.items() if text is not None})
