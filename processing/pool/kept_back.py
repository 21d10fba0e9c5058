"""What is tried after a pause, and what is behind it in its lane: it stands apart. Pure.

Suspects that cannot be looked up, as dead workers' backends do not end or the database refuses it,
and what whoever had it before may be at yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from feedback.backend import Backend
from feedback.contract.record import Record, is_due
from processing.pool.chunk import Held
from processing.pool.kept_places import KeptCounts
from processing.pool.lane_order import LaneOrder
from processing.pool.queues import Queues


class KeptBack:
    """A look at it, and what sets it free."""

    def __init__(self, queues: Queues, table: LaneOrder) -> None:
        self._queues = queues
        self._table = table
        self._tried: set[int] = set()
        """Lanes that were tried last: they stay kept back, most likely."""

    @property
    def unended(self) -> AbstractSet[Backend]:
        """Backends of dead workers that do not end."""
        return self._queues.unended

    @property
    def refusing(self) -> bool:
        """Whether the database refuses look-ups."""
        return self._queues.refusing

    @property
    def elsewhere(self) -> bool:
        """Whether of some records others may be at work yet."""
        return self._queues.elsewhere

    @property
    def now(self) -> KeptCounts:
        """How many records are kept back."""
        return self._queues.later.all

    def records(self) -> Iterator[Record]:
        """They, and what stands behind those that are tried."""
        for _, all_of_it in self._places():
            yield from (held.record for held in all_of_it)
        for lane in self._tried.difference(self._queues.later.lanes):
            yield from (held.record for held in self._table.held.get(lane, ()))

    def behind(self, *, due: bool) -> Iterator[Record]:
        """What stands behind those and never went to a worker, of each lane the newest first."""
        for lane in reversed(self._queues.later.lanes):
            for held in reversed(self._table.held[lane]):
                fresh = held.suspect is None and held.first_sent is None
                if fresh and is_due(held.record) is due:
                    yield held.record

    def waiting_for(self, backend: Backend) -> list[Record]:
        """Records that wait for the end of a backend, in their lanes' order."""
        return [
            held.record
            for first, all_of_it in self._places()
            if first.suspect is not None and backend in first.suspect.backends
            for held in all_of_it
        ]

    def wait_for(self, backends: Iterable[Backend]) -> None:
        """These do not end: only their suspects, and what is behind those, wait for it."""
        self._queues.wait_for_backends(backends)

    def gone(self, backends: Iterable[Backend]) -> None:
        """These have ended: what waited for them may be looked up."""
        self._queues.backends_gone(backends)
        self._tried.clear()

    def try_again(self) -> None:
        """One suspect of each may be looked up: that shows whether the backend has ended."""
        self._tried = self._queues.try_backends()

    def wait_for_look_ups(self) -> None:
        """The database refused to look one up: those that met that wait."""
        self._queues.wait_for_look_ups()

    def look_ups_work(self) -> None:
        """One that was refused was looked up: the others may be, too."""
        self._queues.look_ups_work()
        self._tried.clear()

    def try_look_ups(self) -> None:
        """Those that were refused may be tried, until one is refused again."""
        self._tried = self._queues.try_look_ups()

    def try_elsewhere(self) -> int:
        """Those may be tried: each comes back where that is so yet. How many they are."""
        before = len(self._queues.later)
        self._tried = self._queues.try_elsewhere()
        return before - len(self._queues.later)

    def _places(self) -> Iterator[tuple[Held, Iterable[Held]]]:
        """What is kept back, each with all that its place holds."""
        for place in self._queues.later:
            all_of_it = (place,) if isinstance(place, Held) else self._table.held[place]
            yield self._queues.first_of(place), all_of_it
