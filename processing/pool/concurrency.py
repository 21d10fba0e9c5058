"""Requests of limited types: how many are in flight, and which wait for one of those to end.

Lanes asks here wherever a record might go into a chunk. A type without a limit costs it one look
into an empty dict.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from feedback.contract.record import kind_of

if TYPE_CHECKING:
    from processing.pool.chunk import Chunk, Held

Place = TypeVar("Place")
"""What stands in a queue: a lane, or a record without one."""


class Concurrency(Generic[Place]):
    """Counts and queues of the types that may not run without bound."""

    def __init__(self) -> None:
        self.most: Mapping[str, int] = {}
        """Type -> how many may be in flight."""
        self.in_flight: Counter[str] = Counter()
        self._in_chunk: Mapping[str, int] = {}
        self._queues: dict[str, deque[Place]] = {}
        """Types in the order in which they have their turn."""

    def set(
        self,
        most: Mapping[str, int],
        in_chunk: Mapping[str, int],
        chunks: Iterable[Chunk],
    ) -> None:
        """Other limits hold; `chunks` are those in flight. Call it with no place queued."""
        self.most, self._in_chunk = most, in_chunk
        self.in_flight.clear()
        for chunk in chunks:
            kinds = (kind_of(record) for _, record in chunk.remaining())
            chunk.limited = Counter(kind for kind in kinds if kind in most)
            self.in_flight.update(chunk.limited)

    # What is in flight

    def room(self, kind: str, chunk: Chunk) -> bool:
        """Whether one more of a type may go into this chunk now."""
        most = self.most.get(kind)
        if most is None:
            return True
        return self.in_flight[kind] < most and chunk.limited[kind] < self._in_chunk[kind]

    def room_for_suspect(self, kind: str) -> bool:
        """The same for a suspect: one may always go, as it has to be settled."""
        most = self.most.get(kind)
        return most is None or self.in_flight[kind] < max(1, most)

    def room_for(self, held: Held, chunk: Chunk) -> bool:
        """The same for a record that waits; what is only to be looked up needs none."""
        kind = kind_of(held.record)
        if held.suspect is None:
            return self.room(kind, chunk)
        return held.suspect.decided or self.room_for_suspect(kind)

    def taken(self, kind: str, chunk: Chunk) -> None:
        """A record of that type went into a chunk: the others have their turn next."""
        if kind not in self.most:
            return
        chunk.limited[kind] += 1
        self.in_flight[kind] += 1
        if kind in self._queues:
            self._queues[kind] = self._queues.pop(kind)

    def back(self, kind: str, chunk: Chunk) -> None:
        """A record of a chunk in flight came back."""
        if chunk.limited[kind]:
            chunk.limited[kind] -= 1
            self.in_flight[kind] -= 1

    def release(self, chunk: Chunk) -> None:
        """A chunk is no longer in flight."""
        self.in_flight.subtract(chunk.limited)
        chunk.limited.clear()

    # What waits

    def wait(self, kind: str, place: Place) -> None:
        """A place whose first record is of that type waits."""
        queue = self._queues.get(kind)
        if queue is None:
            queue = self._queues[kind] = deque()
        queue.append(place)

    def queues(self) -> Iterator[tuple[str, deque[Place]]]:
        """Types of which more may start, with what waits; who is served has its turn last."""
        for kind in list(self._queues):
            queue = self._queues[kind]
            if not queue:
                del self._queues[kind]
            elif self.in_flight[kind] < self.most[kind]:
                yield kind, queue

    @property
    def waiting(self) -> Mapping[str, deque[Place]]:
        """Every queue."""
        return self._queues

    def places(self) -> list[Place]:
        """All that wait."""
        return [place for queue in self._queues.values() for place in queue]

    def clear(self) -> list[Place]:
        """Empties the queues."""
        places = self.places()
        self._queues.clear()
        return places

    def remove(self, place: Place) -> None:
        """Takes a place out of whichever queue it is in."""
        for queue in self._queues.values():
            if place in queue:
                queue.remove(place)
