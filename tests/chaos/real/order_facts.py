"""What is known of orders after an episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from confluent_kafka import Message

IN_TURN = "in-turn"
"""What keys begin with that have one open order at a time: so theirs have an order."""


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
    turns: dict[str, list[str]] = field(default_factory=dict)
    """By key, of which one order is open at a time: the ids, as they stand in the outbox."""
    spots: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of these: partition and offset of the first copy, where all its copies are in one."""


def first_spots(messages: Iterable[Message], names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Where the first copy of each of these lies, where all its copies are in one partition."""
    found: dict[str, dict[int, int]] = {}
    for message in messages:
        value = dict(message.headers() or []).get("ce_id")
        name = value.decode(errors="replace") if isinstance(value, bytes) else ""
        if name in names:
            first = found.setdefault(name, {})
            partition, offset = message.partition() or 0, message.offset() or 0
            first[partition] = min(offset, first.get(partition, offset))
    return {
        name: spot for name, spots in found.items() if len(spots) == 1 for spot in spots.items()
    }
