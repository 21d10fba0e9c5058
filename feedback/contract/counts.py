"""What is counted of requests, by minute: every name of it that is not a user's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from feedback.contract.states import State


class NotRun(StrEnum):
    """What becomes of messages that are not run and get no state."""

    DEAD_LETTER = "dead_letter"  # stored as a dead letter; code: its DeadLetterReason
    SKIPPED = "skipped"  # left out by the decoder of its topic; code `skip`
    LOST = "lost"  # given up when the commit of its offset failed; code `at_commit`


SKIP: Final = "skip"
AT_COMMIT: Final = "at_commit"


class Count(NamedTuple):
    """What one number of the counters is about."""

    type: str
    """A request type, or what a message says is one; may be empty."""
    state: State | NotRun
    code: str
    """One of feedback.contract.states or of this module, or one of a handler's own."""


PlainCount: TypeAlias = tuple[str, str, str]
"""(type, state, code): a Count as it crosses a channel."""
AnyCounts: TypeAlias = Mapping[Count, int] | Mapping[PlainCount, int]
