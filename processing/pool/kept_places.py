"""Places that wait before they are tried, and how many records they hold. Pure.

Counted as they come and go: they may be thousands, and are asked for in every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from feedback.contract.record import Record, is_due
from processing.pool.chunk import Held

if TYPE_CHECKING:
    from processing.pool.lane_order import LaneOrder
    from processing.pool.queues import Place


class KeptCounts(NamedTuple):
    """How many records are kept back."""

    records: int = 0
    due: int = 0
    """Of them, claimed rows."""
    messages_behind: int = 0
    """Messages that stand behind others and never went to a worker."""
    due_behind: int = 0
    """Claimed rows that do."""

    def plus(self, other: KeptCounts) -> KeptCounts:
        """The sum."""
        return KeptCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def less(self, other: KeptCounts) -> KeptCounts:
        """The difference."""
        return KeptCounts(*(a - b for a, b in zip(self, other, strict=True)))


NONE = KeptCounts()


class KeptPlaces:
    """Lanes whose first record has to wait, and such records without a lane."""

    def __init__(self, table: LaneOrder) -> None:
        self._table = table
        self._places: deque[Place] = deque()
        self.lanes: dict[int, KeptCounts] = {}
        """Lane -> what it holds."""
        self.all = NONE

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def append(self, place: Place) -> None:
        """One more, the last one."""
        self._places.append(place)
        if isinstance(place, Held):
            kept = _count(place)
        else:
            kept = NONE
            for held in self._table.held[place]:
                kept = kept.plus(_count(held))
            self.lanes[place] = kept
        self.all = self.all.plus(kept)

    def grew(self, lane: int, record: Record) -> None:
        """A lane that is here got one more record, which never went to a worker."""
        kept = _count(Held(record))
        self.lanes[lane] = self.lanes[lane].plus(kept)
        self.all = self.all.plus(kept)

    def remove(self, lane: int) -> None:
        """A lane is no longer here, where it was."""
        if (kept := self.lanes.pop(lane, None)) is not None:
            self._places.remove(lane)
            self.all = self.all.less(kept)

    def take(self) -> list[Place]:
        """Takes all of them out."""
        places = [*self._places]
        self._places.clear()
        self.lanes.clear()
        self.all = NONE
        return places


def _count(held: Held) -> KeptCounts:
    due, behind = is_due(held.record), held.suspect is None and held.first_sent is None
    return KeptCounts(1, due, behind and not due, behind and due)
