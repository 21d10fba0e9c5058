"""What the commit state machine wants done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from consumer.intake.events import Place
from feedback.contract.record import Record

Found: TypeAlias = Mapping[Place, tuple[int, str | None]]
"""Committed offset and metadata of partitions; those that could not be read are left out."""


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Commit these offsets, asynchronously, each with this metadata."""

    offsets: dict[Place, int]
    metadata: str
    again: bool = False
    """The same was sent before."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Ask the group for its committed offsets."""

    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """These records are ours to run: their offsets are committed with our token."""

    records: list[Record]


@dataclass(frozen=True, slots=True)
class Drop:
    """This many records of a partition won't run here."""

    place: Place
    count: int
    cause: str


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Leave the group, wait until nothing is assigned, and join it again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """The service has to end."""

    message: str


Action = SendCommit | ReadBack | Deliver | Drop | Rejoin | Fatal
