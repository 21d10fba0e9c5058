"""What cannot be looked up: dead workers' backends do not end, or the database refuses it. Pure.

They are suspects, and what is behind those in their lanes: it stands in the queues apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from feedback.backend import Backend
from feedback.contract.record import Record, is_due
from processing.ipc.frames import Suspect
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
        """Lanes of suspects that were tried last: they stay kept back, most likely."""

    @property
    def unended(self) -> AbstractSet[Backend]:
        """Backends of dead workers that do not end."""
        return self._queues.unended

    @property
    def refusing(self) -> bool:
        """Whether the database refuses look-ups."""
        return self._queues.refusing

    @property
    def now(self) -> KeptCounts:
        """How many records are kept back."""
        return self._queues.later.all

    def records(self) -> Iterator[Record]:
        """They, and what stands behind those that are tried."""
        for _, behind in self._places():
            yield from (held.record for held in behind)
        for lane in self._tried.difference(self._queues.later.lanes):
            yield from (held.record for held in self._table.held.get(lane, ()))

    def behind(self, *, due: bool) -> Iterator[Record]:
        """What stands behind suspects and never went to a worker, of each lane the newest first."""
        for lane in reversed(self._queues.later.lanes):
            for held in reversed(self._table.held[lane]):
                fresh = held.suspect is None and held.first_sent is None
                if fresh and is_due(held.record) is due:
                    yield held.record

    def waiting_for(self, backend: Backend) -> list[Record]:
        """Records that wait for the end of a backend, in their lanes' order."""
        return [
            held.record
            for suspect, behind in self._places()
            if backend in suspect.backends
            for held in behind
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

    def _places(self) -> Iterator[tuple[Suspect, Iterable[Held]]]:
        """Suspects, each with all that its place holds."""
        for place in self._queues.later:
            if (suspect := self._queues.first_of(place).suspect) is not None:
                yield suspect, (place,) if isinstance(place, Held) else self._table.held[place]
