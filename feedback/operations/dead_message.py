"""A dead letter's message as it came, and the request that it would become. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from feedback.contract.cloudevents import is_structured, unfold
from feedback.contract.payloads import parse_json, write_json
from feedback.contract.record import Headers, Record
from feedback.errors import Malformed
from feedback.journal.rows import readable_headers, stored_headers
from feedback.operations.request_reads import Row


class DeadMessage(NamedTuple):
    """A message as it came, and when it was read from its row, by the database's clock."""

    topic: str
    partition: int
    offset: int
    produced_at: datetime
    key: bytes | None
    headers: Headers
    value: bytes | None
    read_at: datetime


def message_of(row: Row) -> DeadMessage:
    """The message of a row of `dead_letters`. Raises Malformed where its headers are unreadable."""
    try:
        headers = stored_headers(row["headers"])
    except (TypeError, ValueError) as error:
        raise Malformed(f"nobody can read the headers of its row: {error}") from None
    return DeadMessage(
        row["topic"], row["partition"], row["kafka_offset"], row["produced_at"], row["key"],
        headers, row["payload"], row["read_at"],
    )  # fmt: skip


def type_to_run(row: Row) -> str | None:
    """The type as which a message would run; None where it would only run as another one.

    A structured event's is the one in its body, whatever its header says.
    """
    headers = dict(readable_headers(row["headers"]))
    if is_structured(headers.get("content-type")):
        try:
            # With an id, as whoever retries it may give it one.
            headers, _ = unfold(headers, _renamed(row["payload"], "id", None))
        except Malformed:
            return None
    value = headers.get("ce_type")
    return value.decode(errors="replace") if value else None


def header_type(headers: Any) -> str | None:
    """The type that the headers of a row say."""
    for name, value in readable_headers(headers):
        if name == "ce_type" and value:
            return value.decode(errors="replace")
    return None


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
    """A structured event with its id and type set; what is no event stays as it is.

    So does one that is read deeper than it is written: whoever unfolds it says what is wrong.
    """
    try:
        event = parse_json(value or b"")
    except ValueError:
        return value
    if not isinstance(event, dict):
        return value
    given = {"id": id, "type": type}
    try:
        return write_json(event | {name: text for name, text in given.items() if text is not None})
    except ValueError:
        return value
