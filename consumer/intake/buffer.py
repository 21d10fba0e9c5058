"""Records that were polled and wait for their commit, by partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from consumer.intake.assignment import Run
from consumer.intake.events import Place
from consumer.intake.flow_control import Room
from feedback.contract.record import OFFSET, Record, record_size


class Share(NamedTuple):
    """What was taken of one partition."""

    records: list[Record]
    size: int


@dataclass(slots=True)
class _Queue:
    records: list[Record] = field(default_factory=list)
    size: int = 0


class Buffer:
    """A queue per partition; partitions take turns where not everything fits."""

    def __init__(self) -> None:
        self._queues: dict[Place, _Queue] = {}
        self.count = 0
        self.size = 0

    @property
    def places(self) -> tuple[Place, ...]:
        """Partitions with records."""
        return tuple(self._queues)

    def add(self, runs: Iterable[Run]) -> int:
        """Appends records and returns their size in bytes."""
        total = 0
        for place, records in runs:
            size = sum(map(record_size, records))
            queue = self._queues.setdefault(place, _Queue())
            queue.records += records
            queue.size += size
            self.count += len(records)
            total += size
        self.size += total
        return total

    def drop(self, place: Place) -> int:
        """Throws a partition's records away and returns how many they were."""
        queue = self._remove(place)
        return len(queue.records)

    def drop_below(self, place: Place, offset: int) -> int:
        """Throws away what lies below an offset and returns how many records that were."""
        queue = self._remove(place)
        kept = [record for record in queue.records if record[OFFSET] >= offset]
        if kept:
            self.add([Run(place, kept)])
        return len(queue.records) - len(kept)

    def take(self, room: Room) -> dict[Place, Share]:
        """Takes what fits. A partition whose records did not all fit goes last the next time."""
        taken: dict[Place, Share] = {}
        requests, size, idle = room
        for place, queue in list(self._queues.items()):
            if len(queue.records) > requests or queue.size > size:
                share = _fitting(queue.records, Room(requests, size, idle))
                if share.records:
                    taken[place] = share
                    self._remove(place)
                    self.add([Run(place, queue.records[len(share.records) :])])
                break
            self._remove(place)
            taken[place] = Share(queue.records, queue.size)
            requests, size, idle = requests - len(queue.records), size - queue.size, False
        return taken

    def _remove(self, place: Place) -> _Queue:
        queue = self._queues.pop(place, None)
        if queue is None:
            return _Queue()
        self.count -= len(queue.records)
        self.size -= queue.size
        return queue


def _fitting(records: Sequence[Record], room: Room) -> Share:
    """The first records as far as they fit; one of any size where nothing is in hand."""
    fitting: list[Record] = []
    total = 0
    for record in records[: max(0, room.requests)]:
        size = record_size(record)
        if total + size > room.size and not (room.idle and not fitting):
            break
        total += size
        fitting.append(record)
    return Share(fitting, total)
