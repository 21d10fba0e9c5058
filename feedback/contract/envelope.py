"""The wire contract: from a Kafka message to the request it carries.

A message names its request in headers (binary mode of the CloudEvents Kafka binding) or in a
JSON envelope around its payload (structured mode, which is unfolded to the first).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from feedback.contract.cloudevents import is_structured, unfold
from feedback.contract.headers import (
    JSON,
    MAX_NAME,
    NO_OPTIONS,
    OptionalHeaders,
    check_name,
    headers_for,
    other_headers,
    refuse_repeated,
    take_options,
    text_of,
)
from feedback.contract.ids import time_within
from feedback.contract.record import Record
from feedback.errors import Malformed

__all__ = ["JSON", "Envelope", "headers_for", "read"]

_JSON: Final = JSON.encode()


@dataclass(slots=True)
class Envelope:
    """One request as its message says it. Times are seconds since the epoch."""

    id: str
    type: str
    payload: bytes | None
    key: bytes | None
    headers: dict[str, str | bytes]  # those that the contract gives no meaning to
    time: float  # the producer's time: ce_time, else the message's timestamp
    reply_to: str | None
    topic: str
    partition: int
    offset: int
    options: OptionalHeaders = NO_OPTIONS

    @property
    def exact_time(self) -> float:
        """The producer's time, by which requests of one reference are told newer from older.

        In seconds, with what their ids say of it. One that is still to come by the database's clock
        is to count as now: it is a wrong clock's, and no later request of its reference could ever
        be the newer one.
        """
        return self.time if self.options.time is not None else time_within(self.time, self.id)


def read(record: Record) -> Envelope:
    """Reads one message. Raises Malformed, with the id where at least that is valid.

    And nothing else: who asks has other messages in hand.
    """
    try:
        return _read(record)
    except Malformed:
        raise
    except Exception as error:  # nobody thought of it
        raise Malformed(f"it could not be read: {type(error).__name__}: {error}") from error


def _read(record: Record) -> Envelope:
    topic, partition, offset, timestamp, key, value, pairs, type_, _ = record
    if pairs is None:
        raise Malformed("the message's headers could not be read")
    headers = dict(pairs)
    if len(headers) != len(pairs):
        refuse_repeated(pairs)
    content_type = headers.get("content-type")
    if content_type == _JSON:
        del headers["content-type"]  # it would be that without
    elif content_type is not None and is_structured(content_type):
        headers, value = unfold(headers, value)
        type_ = None  # what main read is not this event's
    request_id = _take_name(headers, "ce_id", None)
    if type_ is None:
        type_ = _take_name(headers, "ce_type", request_id)
    else:
        headers.pop("ce_type", None)
        if not 0 < len(type_) <= MAX_NAME or not type_.isprintable():
            check_name("ce_type", type_, request_id)
    raw = headers.pop("ce_replyto", None)
    reply_to = text_of("ce_replyto", raw, request_id) if raw else None
    time = timestamp / 1000
    # Most messages carry nothing else, and each header costs.
    if not headers:
        return Envelope(request_id, type_, value, key, {}, time, reply_to, topic, partition, offset)
    options = take_options(headers, request_id)
    if options.time is not None:
        time = options.time
    others = other_headers(headers, request_id)
    return Envelope(
        request_id, type_, value, key, others, time, reply_to, topic, partition, offset, options
    )


def _take_name(headers: dict[str, bytes | None], header: str, id: str | None) -> str:
    raw = headers.pop(header, None)
    if raw is None:
        raise Malformed(f"header {header} is missing", id)
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = text_of(header, raw, id)  # which says what is wrong
    if 0 < len(name) <= MAX_NAME and name.isprintable():
        return name
    return check_name(header, name, id)
