"""The queues in front of the workers: who may go next, and who had his turn. Pure.

What is fresh was never looked at. What can't just share the next chunk stands elsewhere: lanes
whose first record may share one, places that go alone, and places of limited types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from feedback.contract.record import Record, is_due, kind_of
from processing.pool.chunk import Held
from processing.pool.concurrency import Concurrency
from processing.pool.costs import Costs
from processing.pool.lane_table import LaneTable
from processing.pool.time_shares import AloneQueue, share_of

Place: TypeAlias = int | Held
"""A lane, or a record without one."""


class Queues:
    """Each record in hand that no worker has stands in one of them, or in a lane that does."""

    def __init__(self, costs: Costs, table: LaneTable) -> None:
        self._costs = costs
        self._table = table
        self._fresh: tuple[deque[Record], deque[Record]] = (deque(), deque())
        """What came from Kafka, and from the waiting queue. They take turns: else the longer one
        would keep the other waiting."""
        self._due_first = False
        self.quick: deque[int] = deque()
        """Lanes whose first record may share a chunk."""
        self.alone: AloneQueue[Place] = AloneQueue()
        """Lanes whose first record goes alone, and records without a lane that do."""
        self.limited: Concurrency[Place] = Concurrency()
        """The same of limited types, whether they go alone or not; but no suspects."""
        self._limited_first = False
        self._sorted_at = costs.version
        """The version of the costs by which `alone` was sorted out."""

    @property
    def fresh(self) -> int:
        """Records that were never looked at."""
        return sum(map(len, self._fresh))

    def fresh_of(self, record: Record) -> deque[Record]:
        """The queue of fresh records that this one belongs to."""
        return self._fresh[is_due(record)]

    def fresh_in_turn(self) -> Sequence[deque[Record]]:
        """Both queues of fresh records; another one first than the last time."""
        self._due_first = not self._due_first
        return self._fresh[:: -1 if self._due_first else 1]

    def limited_in_turn(self) -> bool:
        """Whether limited types go before the others: every second time."""
        self._limited_first = not self._limited_first
        return self._limited_first

    def goes_alone(self, held: Held) -> bool:
        """Whether a record may not share a chunk."""
        return held.apart or self._costs.of(kind_of(held.record)) is None

    def put_lane(self, lane: int) -> None:
        """A lane that nothing in flight blocks waits for its turn, where it holds anything."""
        first = self._table.wait(lane)
        if first is not None:
            self._put(lane, first)

    def put_loose(self, held: Held) -> None:
        """A record without a lane waits for its turn."""
        self._put(held, held)

    def _put(self, place: Place, first: Held) -> None:
        kind = kind_of(first.record)
        if kind in self.limited.most and not first.apart:
            self.limited.wait(kind, place)
        elif isinstance(place, Held) or self.goes_alone(first):
            self.alone.put(share_of(first.record), place)
        else:
            self.quick.append(place)

    def put_first(self, held: Held) -> None:
        """A record without a lane that came back goes before its like."""
        if held.apart:
            self.alone.put(share_of(held.record), held, first=True)
        else:
            self.fresh_of(held.record).appendleft(held.record)

    def remove(self, lane: int) -> None:
        """Takes a lane out of whichever queue it is in."""
        if lane in self.quick:
            self.quick.remove(lane)
        self.alone.remove(lane)
        self.limited.remove(lane)

    def apart(self) -> Iterator[Record]:
        """Records without a lane that were looked at."""
        for place in (*self.alone.places(), *self.limited.places()):
            if isinstance(place, Held):
                yield place.record

    def sort_alone(self) -> None:
        """Where a kind went alone and may share chunks now, nothing of it waits as such."""
        if self._sorted_at != self._costs.version:
            self._sorted_at = self._costs.version
            self.sort(self.alone.clear())

    def sort(self, places: Iterable[Place]) -> None:
        """Queues places anew: costs or limits have changed."""
        shared: list[Record] = []
        for place in places:
            if not isinstance(place, Held):
                self.put_lane(place)
            elif self.goes_alone(place) or kind_of(place.record) in self.limited.most:
                self.put_loose(place)
            else:
                shared.append(place.record)
        # Before those that were never looked at, in their order.
        for record in reversed(shared):
            self.fresh_of(record).appendleft(record)

    def clear_waiting(self) -> list[Place]:
        """Takes everything out that was looked at."""
        places = [*self.quick, *self.alone.clear(), *self.limited.clear()]
        self.quick.clear()
        return places

    def clear_fresh(self) -> list[Record]:
        """Takes everything out that was never looked at."""
        records = [record for queue in self._fresh for record in queue]
        for queue in self._fresh:
            queue.clear()
        return records
