"""What the books are made of: what was sent, and what is known of it afterwards. Plain data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from examples.demo.item import Way

COALESCED = "done, or superseded"
"""The end of a request that may give way to a newer one, as `ConfirmedMessage.expected` says it."""


class ConfirmedMessage(NamedTuple):
    """One message as the broker confirmed it."""

    kind: str
    id: str | None
    expected: str
    """How its request has to end: "done", state/code, or COALESCED. A conflict's: "conflict"."""
    again: bool
    """Sent again, as no answer had come."""
    partition: int
    offset: int


class QueuePlan(NamedTuple):
    """What the plan says of a request that goes through the waiting queue."""

    way: Way
    not_before: datetime | None = None
    attempt: int = 1
    """The attempt that has to succeed."""
    follows: float | None = None
    """Seconds from its start to that of the request that follows it."""


class JournalRow(NamedTuple):
    """A row of the journal; partition and offset are those of the message that ran last.

    Both are negative where no message asked for it but another request.
    """

    id: str
    state: str
    code: str
    run: int
    resends: int
    partition: int
    offset: int
    attempt: int = 1
    finished_at: datetime | None = None
    superseded_by: str | None = None
    follower: str | None = None
    """The request that it asked for."""
    began_at: datetime | None = None
    """When the transaction began that asked for it."""

    @property
    def end(self) -> str:
        """As `ConfirmedMessage.expected` says it."""
        return self.state if self.state == "done" else f"{self.state}/{self.code}"


class FailedAttempt(NamedTuple):
    """A run that did not succeed, of the journal."""

    id: str
    run: int


class LetterRow(NamedTuple):
    """A dead letter of the journal."""

    partition: int
    offset: int
    reason: str
    detail: str


class Gap(NamedTuple):
    """Where messages may have been lost, and how many at most.

    A consumer that stops loses none, but further copies of a request leave no trace in it: their
    request is parked or has its row, and they are told so.
    """

    cause: Literal["commit", "killed", "stopped"]
    room: int
    below: Mapping[int, int] | None = None
    """Partition -> offset below which they lie; None: anywhere."""

    def explains(self, message: ConfirmedMessage, *, copy: bool) -> bool:
        """Whether this message may have been lost here; `copy`: it is not the first of its id."""
        if self.room <= 0 or (self.cause == "stopped" and not copy):
            return False
        return self.below is None or message.offset < self.below.get(message.partition, 0)


@dataclass(frozen=True, slots=True)
class Book:
    """All facts that the ledger is made of."""

    messages: Sequence[ConfirmedMessage] = ()
    rows: Sequence[JournalRow] = ()
    attempts: Sequence[FailedAttempt] = ()
    letters: Sequence[LetterRow] = ()
    effects: Mapping[str, int] = field(default_factory=dict)
    """Id -> effects that it left: rows of the shop, calls of the card service."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Id -> the end that its producer was told."""
    gaps: Sequence[Gap] = ()
    waits: Mapping[str, QueuePlan] = field(default_factory=dict)
    """Id -> what the plan says of it, where it goes through the waiting queue."""
    revived: Collection[str] = frozenset()
    """Ids that an operator retried when they were dead."""
    parked: int = 0
    """Requests that a consumer which stopped left to the waiting queue."""
    read_again: int = 0
    """Messages that were taken from a consumer that died or stopped, and had been run before."""
    suspects: int = 0
    """Records that a killed worker had in hand: they were looked up once more."""
