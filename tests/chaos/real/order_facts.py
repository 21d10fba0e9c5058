"""What is known of orders after an episode."""

from __future__ import annotations

from dataclasses import dataclass


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
