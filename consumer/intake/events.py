"""What the Kafka client tells the loop, in order, and what the commit state machine wants done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from consumer.intake.offset_metadata import LowMark, UnfinishedGap
from feedback.contract.record import Record

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""

FATAL_TROUBLE = frozenset(
    {
        "_AUTO_OFFSET_RESET",  # auto_offset_reset = "error": somebody has to say where to begin
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "FENCED_INSTANCE_ID",
    }
)
"""Errors that no waiting heals, whether or not the client calls them fatal."""


NO_GAPS: Mapping[Place, UnfinishedGap] = MappingProxyType({})


class Polled(NamedTuple):
    """Records of any partitions, each partition's in the order of its offsets."""

    records: list[Record]


class Assigned(NamedTuple):
    """Partitions that this process owns from now on, besides those that it had."""

    places: tuple[Place, ...]
    gaps: Mapping[Place, UnfinishedGap] = NO_GAPS
    """What of them is read again."""
    unknown: tuple[Place, ...] = ()
    """Those of them for which nobody could say where to begin: the client has them paused."""


class Revoked(NamedTuple):
    """Partitions that this process no longer owns; `lost`: another may own them already."""

    places: tuple[Place, ...]
    lost: bool


class Answered(NamedTuple):
    """The answer to a commit. Errors are librdkafka's names, None where there was none."""

    metadata: str | None
    """The token of the commit."""
    error: str | None
    errors: Mapping[Place, str | None]
    sent: bool = True
    """False: the client did not take it, so nothing of it can land."""


class ConnectionLost(NamedTuple):
    """A connection to the group's coordinator broke, or a request on it timed out."""

    detail: str
    late: bool = False
    """Answers that came after it may have been said before it."""


class JoinedAnew(NamedTuple):
    """The group had given this member up: what was its is lost, and it joins again."""


class OffsetReset(NamedTuple):
    """Where the client stood there is nothing any more: it goes on where the reset policy says.

    Records that were fetched before that may still come.
    """

    place: Place


ADVICE = {
    "INCONSISTENT_GROUP_PROTOCOL": (
        "all members of a classic group need the same kafka_assignor; stop those with another one,"
        " or give this one theirs"
    ),
}


class Trouble(NamedTuple):
    """An error that belongs to no commit; a fatal one ends the client."""

    code: str
    detail: str
    fatal: bool

    @property
    def ends_service(self) -> bool:
        """Nothing that comes later makes it good."""
        return self.fatal or self.code in FATAL_TROUBLE

    @property
    def explained(self) -> str:
        """The detail, with what to do about it where it lasts until somebody does that."""
        return f"{self.detail}: {ADVICE[self.code]}" if self.code in ADVICE else self.detail


Event = Polled | Assigned | Revoked | Answered | ConnectionLost | JoinedAnew | OffsetReset | Trouble


# What is to be done

Found: TypeAlias = Mapping[Place, tuple[int, str | None]]
"""Committed offset and metadata of partitions; those that could not be read are left out."""


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Commit these offsets, asynchronously, each with this token and its low mark."""

    offsets: dict[Place, int]
    metadata: str
    """The token, up to and with the semicolon behind it."""
    marks: dict[Place, LowMark] = field(default_factory=dict)
    """None of partitions of which nothing is told."""


BeforeRevoke: TypeAlias = Callable[[Sequence[Place]], SendCommit | None]
"""What is called before partitions are let go; returns the last commit of them."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Ask the group for its committed offsets."""

    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """These records are ours to run: their offsets are committed with our token."""

    records: list[Record]
    size: int
    """Bytes of them."""


@dataclass(frozen=True, slots=True)
class Drop:
    """This many records of a partition won't run here."""

    place: Place
    count: int
    cause: str


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Leave the group, wait until nothing is assigned, and join it again, as another member."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndService:
    """The service has to end."""

    message: str


Action = SendCommit | ReadBack | Deliver | Drop | Rejoin | EndService
