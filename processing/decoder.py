"""Decoders: how messages of another format become requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A Kafka message as it came. `timestamp` is in milliseconds since the epoch."""

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

    `payload` is bytes as they are, or any value that JSON can hold. `key` is the ordering key;
    None keeps the raw message's.
    """

    id: str
    type: str
    payload: Any
    key: bytes | None = None
    reference: str | None = None
    not_before: datetime | None = None
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Skip:
    """What a decoder returns for a message that is no request: it is counted and left."""

    reason: str


Decoder = Callable[[RawMessage], Message | Skip]
