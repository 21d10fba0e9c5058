"""What a sandbox's worker tells producers: a status may come twice, and an old one late."""

from __future__ import annotations

from collections.abc import Sequence

from feedback.contract.record import Record
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusWrite
from processing.testing.planned_faults import PlannedFaults
from processing.testing.sandbox_client import write_all


class Answers:
    """Writes statuses, as the faults have it."""

    def __init__(self, statuses: MemoryStatusStore, faults: PlannedFaults) -> None:
        self._statuses = statuses
        self._faults = faults
        self._again: dict[str, StatusWrite] = {}
        """Request id -> what comes once more, after the next status of that request."""

    def write(self, writes: Sequence[StatusWrite], running: Record | None) -> None:
        """What a worker says that runs this record."""
        write_all(self._statuses, writes)
        late = [self._again.pop(one.id) for one in writes if one.id in self._again]
        if writes and running is not None and self._faults.strikes("answer_twice", running):
            late += writes
            self._again |= {one.id: one for one in writes}
        write_all(self._statuses, late)
