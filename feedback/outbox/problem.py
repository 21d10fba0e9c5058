"""One thing of an outbox that is not as this version has it."""

from __future__ import annotations

from typing import NamedTuple


class OutboxProblem(NamedTuple):
    """What was found, and what to do about it."""

    text: str
    advice: str
    wrong: bool = True
    """False where the outbox works all the same."""
