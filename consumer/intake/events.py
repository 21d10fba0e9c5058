"""What the Kafka client tells the loop, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from feedback.contract.record import Record

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


class Polled(NamedTuple):
    """Records of any partitions, each partition's in the order of its offsets."""

    records: list[Record]


class Assigned(NamedTuple):
    """Partitions that this process owns from now on, besides those that it had."""

    places: tuple[Place, ...]


class Revoked(NamedTuple):
    """Partitions that this process no longer owns; `lost`: another may own them already."""

    places: tuple[Place, ...]
    lost: bool


class Answered(NamedTuple):
    """The answer to a commit. Errors are librdkafka's names, None where there was none."""

    metadata: str | None
    error: str | None
    errors: Mapping[Place, str | None]


class ConnectionLost(NamedTuple):
    """A connection to the group's coordinator broke, or a request on it timed out."""

    detail: str


class Trouble(NamedTuple):
    """An error that belongs to no commit; a fatal one ends the client."""

    code: str
    detail: str
    fatal: bool


Event = Polled | Assigned | Revoked | Answered | ConnectionLost | Trouble
