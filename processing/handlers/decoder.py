"""Decoders: how messages of another format become requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from feedback.contract.envelope import JSON, Envelope
from feedback.contract.headers import OptionalHeaders, check_name, is_too_far, parse_time
from feedback.contract.payloads import write_json
from feedback.contract.record import Record
from feedback.errors import Malformed
from processing.handlers.outcomes import describe


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A Kafka message as it came. `timestamp` is in milliseconds since the epoch.

    Of a dead letter that was sent again it is the later one; the first stands in `ce_time`.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """What a decoder makes of a raw message: the request's id, type and payload.

    `payload` is bytes as they are, or any value that JSON can hold. `key` is the one that the
    handler sees; None keeps the raw message's, by which the order is kept as long as the request
    has not waited. `not_before` is an aware datetime, at most ten years ahead.
    """

    id: str
    type: str
    payload: Any
    key: bytes | None = None
    reference: str | None = None
    not_before: datetime | None = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Skip:
    """What a decoder returns for a message that is no request: it is counted and left."""

    reason: str


Decoder = Callable[[RawMessage], Message | Skip]


def decode(decoder: Decoder, record: Record) -> Envelope | Skip:
    """One message through its topic's decoder. Raises Malformed, also where the decoder fails."""
    topic, partition, offset, timestamp, key, value, pairs, *_ = record
    raw = RawMessage(topic, partition, offset, timestamp, key, value, dict(pairs or ()))
    try:
        message = decoder(raw)
    except BaseException as error:
        raise Malformed(f"the decoder of topic {topic!r} failed: {describe(error)}") from error
    if isinstance(message, Skip):
        return message
    if not isinstance(message, Message):
        raise Malformed(
            f"the decoder of topic {topic!r} returned {type(message).__name__}, "
            "not a Message or a Skip"
        )
    try:
        return _envelope(message, raw)
    except Malformed:
        raise
    except BaseException as error:
        raise Malformed(
            f"what the decoder of topic {topic!r} returned cannot be read: {describe(error)}"
        ) from error


def _envelope(message: Message, raw: RawMessage) -> Envelope:
    request_id = _name("id", message.id, None)
    if message.key is not None and not isinstance(message.key, bytes):
        raise Malformed(f"the decoder's key is {type(message.key).__name__}, not bytes", request_id)
    if not isinstance(message.content_type, str):
        raise Malformed("the decoder's content_type is no text", request_id)
    reference, not_before = message.reference, message.not_before
    if not_before is not None:
        _check_due(not_before, request_id)
    return Envelope(
        id=request_id,
        type=_name("type", message.type, request_id),
        payload=_payload(message.payload, request_id),
        key=raw.key if message.key is None else message.key,
        headers={name: _header(content) for name, content in raw.headers.items()},
        time=_time(raw),
        reply_to=None,
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offset,
        options=OptionalHeaders(
            content_type=message.content_type,
            not_before=None if not_before is None else not_before.timestamp(),
            reference=None if reference is None else _name("reference", reference, request_id),
        ),
    )


def _time(raw: RawMessage) -> float:
    """The producer's, as of other messages; what `ce_time` says may mean something else here."""
    said = raw.headers.get("ce_time")
    try:
        return raw.timestamp / 1000 if said is None else parse_time(said.decode())
    except (ValueError, OverflowError):
        return raw.timestamp / 1000


def _check_due(not_before: object, id: str) -> None:
    """As ce_notbefore is checked, which it becomes where the request waits."""
    if not isinstance(not_before, datetime):
        kind = not_before.__class__.__name__
        raise Malformed(f"the decoder's not_before is {kind}, not a datetime", id)
    if not_before.tzinfo is None:
        raise Malformed("the decoder's not_before has no time zone", id)
    if is_too_far(not_before.timestamp()):
        raise Malformed(f"the decoder's not_before is {not_before}, more than ten years ahead", id)


def _name(what: str, value: object, id: str | None) -> str:
    if not isinstance(value, str):
        raise Malformed(f"the decoder's {what} is {type(value).__name__}, not text", id)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Malformed(f"the decoder's {what} is not UTF-8: {value!r}", id) from None
    return check_name(f"the decoder's {what}", value, id)


def _payload(payload: Any, id: str) -> bytes:
    if isinstance(payload, bytes):
        return payload
    try:
        return write_json(payload)
    except ValueError as error:
        raise Malformed(f"the decoder's payload is not JSON: {error}", id) from error


def _header(content: bytes | None) -> str | bytes:
    try:
        return (content or b"").decode()
    except UnicodeDecodeError:
        return content or b""
