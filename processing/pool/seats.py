"""The seats of a worker: where its open calls are, and what they were told. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

from feedback.contract.record import kind_of
from processing.ipc.progress import SEATS, Running
from processing.pool.chunk import Chunk
from processing.pool.terminated import Terminated


class Seats:
    """Each chunk that is one call has one."""

    def __init__(self) -> None:
        self.taken: dict[int, Chunk] = {}
        """In the order in which they were taken."""
        self.told: dict[int, Terminated] = {}
        """What was told to end, by the seat that it is in."""
        self.held_up = False
        """Calls wait for the worker's main thread, which has been at one thing for a while."""
        self._begun: set[int] = set()
        """Seats whose calls were seen at work, or on the way to it."""
        self._got_on: float | None = None
        """Since when nothing was seen to begin or to leave; None: until now."""
        self._kinds: Counter[str] = Counter()
        self._free: list[int] = []
        """Seats that were taken before, as a heap."""
        self._used = 0

    def has_room(self, kind: str, at_once: Mapping[str, int]) -> bool:
        """Whether one more of a kind may run here."""
        return len(self.taken) < SEATS and self._kinds[kind] < at_once.get(kind, 0)

    def have_room(self, at_once: Mapping[str, int]) -> bool:
        """Whether calls are open here, and one more of some kind may be."""
        if not self.taken or self.held_up:
            return False
        return any(self.has_room(kind, at_once) for kind in at_once)

    def take(self, chunk: Chunk) -> None:
        """A chunk of one record gets the lowest seat that is free."""
        if self._free:
            chunk.seat = heapq.heappop(self._free)
        else:
            chunk.seat = self._used
            self._used += 1
        if len(self._begun) == len(self.taken):
            self._got_on = None  # nothing has waited so far
        self.taken[chunk.seat] = chunk
        self._kinds[kind_of(chunk.records[0])] += 1

    def leave(self, chunk: Chunk) -> None:
        """A chunk is no longer in flight; nothing where it has no seat."""
        if chunk.seat is None:
            return
        del self.taken[chunk.seat]
        self.told.pop(chunk.seat, None)
        self._begun.discard(chunk.seat)
        self._go_on(None)
        self._kinds[kind_of(chunk.records[0])] -= 1
        heapq.heappush(self._free, chunk.seat)

    def look(self, began: set[int], now: float, patience: float) -> bool:
        """Seats that were seen at work: whether what waits behind is held up from now on."""
        if not began <= self._begun:
            self._begun |= began
            self._go_on(now)
        if len(self._begun) == len(self.taken) or self._got_on is None:
            self._got_on = now
        if self.held_up or now - self._got_on <= patience:
            return False
        self.held_up = True
        return True

    def _go_on(self, since: float | None) -> None:
        self._got_on = since
        self.held_up = False

    def at_work(self, looks: Mapping[int, Running | None]) -> Iterable[tuple[int, Running]]:
        """The seats in which their own calls are seen at this look."""
        for seat, chunk in self.taken.items():
            running = looks.get(seat)
            if running is not None and running.chunk == chunk.number:
                yield seat, running
