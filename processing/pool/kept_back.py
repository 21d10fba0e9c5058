"""What cannot be looked up yet, as dead workers' database backends do not end. Pure.

They are suspects, and what is behind those in their lanes: it stands in the queues apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from feedback.contract.record import Record, is_due
from processing.ipc.frames import Backend, Suspect
from processing.pool.chunk import Held
from processing.pool.lane_order import LaneOrder
from processing.pool.queues import Queues


class KeptBack:
    """A look at it, and what sets it free."""

    def __init__(self, queues: Queues, table: LaneOrder) -> None:
        self._queues = queues
        self._table = table

    @property
    def unended(self) -> AbstractSet[Backend]:
        """Backends of dead workers that do not end."""
        return self._queues.unended

    @property
    def due(self) -> int:
        """How many claimed rows are kept back."""
        if not self._queues.later:
            return 0
        return sum(is_due(held.record) for _, behind in self._places() for held in behind)

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

    def try_again(self) -> None:
        """One suspect of each may be looked up: that shows whether the backend has ended."""
        self._queues.try_backends()

    def _places(self) -> Iterator[tuple[Suspect, Iterable[Held]]]:
        """Suspects, each with all that its place holds."""
        for place in self._queues.later:
            if (suspect := self._queues.first_of(place).suspect) is not None:
                yield suspect, (place,) if isinstance(place, Held) else self._table.held[place]
