"""Places whose first record goes alone: each kind has its share of the workers' time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from feedback.contract.record import Record, is_due, kind_of
from processing.pool.time_shares import TimeShares

Place = TypeVar("Place")
"""What stands in a queue: a lane, or a record without one."""

Share: TypeAlias = tuple[str, bool]
"""A kind, from Kafka or from the waiting queue: neither may keep the other waiting."""


def share_of(record: Record) -> Share:
    """Whose turn a record needs."""
    return kind_of(record), is_due(record)


class AloneQueue(Generic[Place]):
    """A queue per share."""

    def __init__(self) -> None:
        self._queues: dict[Share, deque[Place]] = {}
        self._shares: TimeShares[Share] = TimeShares()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def put(self, share: Share, place: Place, *, first: bool = False) -> None:
        """A place waits, behind the others of its share or before them."""
        queue = self._queues.setdefault(share, deque())
        (queue.appendleft if first else queue.append)(place)

    def in_turn(self) -> Iterator[tuple[Share, Place]]:
        """Takes places out, whose share had least first; put back what can't go."""
        for share in self._shares.in_turn(self._queues):
            queue = self._queues[share]
            for _ in range(len(queue)):
                place = queue.popleft()
                if not queue:
                    self._queues.pop(share, None)
                yield share, place
                queue = self._queues.get(share, deque())

    def served(self, share: Share, seconds: float) -> None:
        """A place that was taken out keeps a worker so long."""
        self._shares.served(share, seconds)

    def remove(self, place: Place) -> None:
        """Takes a place out of whichever queue it is in."""
        for share, queue in list(self._queues.items()):
            if place in queue:
                queue.remove(place)
                if not queue:
                    del self._queues[share]

    def places(self) -> list[Place]:
        """All that wait."""
        return [place for queue in self._queues.values() for place in queue]

    def clear(self) -> list[Place]:
        """Empties the queues."""
        places = self.places()
        self._queues.clear()
        return places
