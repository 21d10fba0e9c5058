"""From a message that could not become a request to the record that perhaps can. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from feedback.contract.cloudevents import is_structured, unfold
from feedback.contract.exact_json import parse_json, write_json
from feedback.contract.record import Headers, Record


class DeadMessage(NamedTuple):
    """A message as it came."""

    topic: str
    partition: int
    offset: int
    produced_at: datetime
    key: bytes | None
    headers: Headers
    value: bytes | None


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
        letter.topic, letter.partition, letter.offset, timestamp, letter.key, value, headers, None,
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
