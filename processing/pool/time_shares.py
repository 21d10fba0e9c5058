"""Who has had least of the workers' time goes next. Pure.

Start-time fair queueing: each share has a clock that runs by the seconds it was served. One that
had nothing to do for a while joins at the common clock, so it is owed nothing for that; one that
was served more than its part keeps that debt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from feedback.contract.record import Record, is_due, kind_of

Key = TypeVar("Key", bound=Hashable)
Place = TypeVar("Place")
"""What stands in a queue: a lane, or a record without one."""

Share: TypeAlias = tuple[str, bool]
"""A kind, from Kafka or from the waiting queue: neither may keep the other waiting."""

MOST_REMEMBERED: Final = 1000


class TimeShares(Generic[Key]):
    """Equal shares of time for whoever has something to do."""

    def __init__(self) -> None:
        self._clocks: dict[Key, float] = {}
        self._now = 0.0

    def in_turn(self, keys: Iterable[Key]) -> list[Key]:
        """These keys, the one that had least first; in the given order where that is the same."""
        return sorted(keys, key=lambda key: max(self._now, self._clocks.get(key, 0.0)))

    def served(self, key: Key, seconds: float) -> None:
        """One was given so many seconds."""
        self._now = max(self._now, self._clocks.get(key, 0.0))
        self._clocks[key] = self._now + seconds
        if len(self._clocks) > MOST_REMEMBERED:
            self._clocks = {k: clock for k, clock in self._clocks.items() if clock > self._now}


def share_of(record: Record) -> Share:
    """Whose turn a record needs."""
    return kind_of(record), is_due(record)


class AloneQueue(Generic[Place]):
    """Places whose first record goes alone: a queue per share."""

    def __init__(self) -> None:
        self._queues: dict[Share, deque[Place]] = {}
        self._shares: TimeShares[Share] = TimeShares()

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def kinds(self) -> set[str]:
        """Kinds of which something waits."""
        return {kind for kind, _ in self._queues}

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
