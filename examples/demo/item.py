"""One message that the demo sends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MessageKind(StrEnum):
    """Why a message is sent."""

    FIRST = "first"
    DUPLICATE = "duplicate"  # the same once more
    CONFLICT = "conflict"  # the same id, another payload
    MALFORMED = "malformed"  # what no consumer can run


class Way(StrEnum):
    """How a request comes to run."""

    DIRECT = "direct"
    DELAYED = "delayed"  # not before a time that its producer names
    RETRIED = "retried"  # the first attempts fail
    DEAD = "dead"  # all attempts fail, until an operator has done something about it
    COALESCED = "coalesced"  # it may give way to a newer one


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """One message to send."""

    kind: MessageKind
    id: str | None
    """None where the message carries none."""
    type: str
    value: bytes
    expected: str
    """How it has to end, as `ConfirmedMessage.expected` says it."""
    key: str | None = None
    """What its handler locks; None: its id."""
    timeout: float | None = None
    headers: tuple[tuple[str, bytes], ...] | None = None
    """Of a malformed one, which no client would send; None: the client writes them."""
    way: Way = Way.DIRECT
    delay: float | None = None
    """Seconds before which it must not run."""
    attempt: int = 1
    """The attempt that succeeds; of one that is dead, the last that fails."""
    follows: float | None = None
    """Seconds after which it has another request run."""

    @property
    def queued(self) -> bool:
        """Whether it, or what it asks for, goes through the waiting queue."""
        return self.way is not Way.DIRECT or self.follows is not None
