"""What is known of orders after an episode."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class OrderFacts:
    """What the producer's own tables say of orders that went through its outbox."""

    begun: int
    """Orders whose transaction was begun."""
    committed: list[str]
    """Ids of the requests of those that are there."""
    answers: list[tuple[str, str]]
    """(id, state/code) of each answer that the producer has worked on."""
    sends: dict[str, int]
    """How often each was sent."""
    open: list[str]
    """Rows of the outbox without an end, in words."""
    rows: Counter[str] = field(default_factory=Counter)
    """All rows of the outbox, by state."""
