"""What operators do with dead letters that are messages: they run, are sent again, or are dropped.

Dead requests are moved by `request_actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

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
from feedback.operations.request_actions import By, Moved
from feedback.operations.request_reads import Row

DEAD_LETTER: Final = "dead_letter"
"""What stands for the state of a message that is no request."""

_OWN_ID: Final = "give it another one (--id; over HTTP: id)"


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
