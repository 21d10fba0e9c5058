"""Records of Kafka messages."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, cast

from confluent_kafka import Message

from feedback.contract.headers import MAX_NAME
from feedback.contract.record import HEADERS, Headers, Record

TYPE_HEADER = "ce_type"
_LONGEST_TYPE: Final = 4 * MAX_NAME
"""Bytes. Types are remembered, also of messages that are none: a longer one is no type."""


def records_of(messages: Sequence[Message]) -> list[Record]:
    """Records of messages without an error, column by column: what a message costs here."""
    headers = _headers_of(messages)
    return list(
        zip(
            map(Message.topic, messages),
            map(Message.partition, messages),
            map(Message.offset, messages),
            [timestamp for _, timestamp in map(Message.timestamp, messages)],
            map(Message.key, messages),
            map(Message.value, messages),
            headers,
            map(_type_of, headers),
            [None] * len(headers),
            strict=True,
        )
    )


def headers_in(records: Sequence[Record]) -> int:
    """How many headers they have, all together."""
    return sum(map(len, filter(None, map(itemgetter(HEADERS), records))))


def _headers_of(messages: Sequence[Message]) -> list[Headers | None]:
    """Headers of each message, None where a name is not UTF-8: the client can't make a str of it.

    Such a message's headers() must not be called again: it would return a list with a hole in it,
    which crashes the interpreter. Nor from an expression of Python: that calls a method without
    arguments, once it has called it often, without looking whether it has failed.
    """
    found: list[Headers | None] = []
    calls = map(Message.headers, messages)
    while True:
        try:
            for headers in calls:
                found.append(cast("Headers", headers or []))  # noqa: PERF401 - some are kept where one fails
            return found
        except (SystemError, ValueError):
            found.append(None)


def _type_of(headers: Headers | None) -> str | None:
    # From behind: of two with this name the last one counts here. The envelope refuses the message.
    for name, value in reversed(headers or ()):
        if name == TYPE_HEADER:
            if value is None or len(value) > _LONGEST_TYPE:
                return None
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return None
