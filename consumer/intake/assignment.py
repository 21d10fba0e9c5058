"""The partitions of this process: what it owns, has taken, and holds until it is committed.

Pure. A partition that is assigned gets a generation, a number that is never used twice, so that
what belongs to an earlier assignment of the same partition is told from the present one. Within one
generation no offset is taken twice: the watermark is the highest one taken. It ends with the
generation, because a new one starts where the group's committed offset says, and that may lawfully
lie lower: records that were dropped before their commit, or offsets that an operator has reset.

A log that ends before our offset is another log: its topic was deleted and made anew, or cut off at
a failover. The client says that it starts anew there; with the first offset that goes back a new
generation begins, or all of that log up to the watermark would be taken for known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter, lt
from typing import NamedTuple

from consumer.intake.events import Place
from consumer.intake.flow_control import Room
from feedback.contract.record import CLAIM, OFFSET, PARTITION, TOPIC, Record, record_size, size_of

_place_of = itemgetter(TOPIC, PARTITION)
_offset_of = itemgetter(OFFSET)


class Run(NamedTuple):
    """Records of one partition, offsets rising."""

    place: Place
    records: list[Record]


class Taken(NamedTuple):
    """What was taken of a batch, and how much was not."""

    runs: list[Run]
    unowned: int
    """Records of partitions that this process does not own."""
    stale: int
    """Records at or below their partition's watermark, or the last of a log that is gone."""
    restarted: Mapping[Place, int]
    """Partitions whose log is another one from these records on, and the generation that this has
    ended."""


class Assignment:
    """The partitions of this process. Owned by the loop's thread."""

    def __init__(self) -> None:
        self._generations: dict[Place, int] = {}
        self._watermarks: dict[Place, int] = {}
        self._resetting: set[Place] = set()
        """Their offsets may go back once: the client starts anew there."""
        self._last = 0

    def assign(self, places: Iterable[Place]) -> None:
        """Partitions are ours from now on, each in a new generation, without a watermark."""
        for place in places:
            self._begin(place)

    def _begin(self, place: Place) -> None:
        self._last += 1
        self._generations[place] = self._last
        self._watermarks[place] = -1
        self._resetting.discard(place)

    def revoke(self, places: Iterable[Place]) -> None:
        """Partitions are no longer ours; those that were not are ignored."""
        for place in places:
            self._generations.pop(place, None)
            self._watermarks.pop(place, None)
            self._resetting.discard(place)

    def offset_reset(self, place: Place) -> None:
        """The client starts anew in a partition: its offsets may go back."""
        if place in self._generations:
            self._resetting.add(place)

    @property
    def places(self) -> tuple[Place, ...]:
        """The partitions that are ours."""
        return tuple(self._generations)

    def __contains__(self, place: Place) -> bool:
        return place in self._generations

    def generation(self, place: Place) -> int | None:
        """The generation of a partition's present assignment, None where it is not ours."""
        return self._generations.get(place)

    def raise_watermark(self, place: Place, offset: int) -> None:
        """Records up to `offset` were taken in an earlier assignment and are not taken again."""
        if place in self._watermarks:
            self._watermarks[place] = max(self._watermarks[place], offset)

    def take(self, records: Sequence[Record]) -> Taken:
        """Sorts a batch by partition and takes what is ours and new."""
        runs: list[Run] = []
        unowned = stale = 0
        restarted: dict[Place, int] = {}
        for place, group in groupby(records, key=_place_of):
            run = list(group)
            watermark = self._watermarks.get(place)
            if watermark is None:
                unowned += len(run)
                continue
            offsets = list(map(_offset_of, run))
            if offsets[0] <= watermark or not all(map(lt, offsets, offsets[1:])):
                if place in self._resetting:
                    restarted[place] = self._generations[place]
                    self._begin(place)
                    run, watermark = _from_the_fall(run, watermark), -1
                    stale += sum(len(before.records) for before in runs if before.place == place)
                    runs = [before for before in runs if before.place != place]
                kept = _rising(run, watermark)
                stale += len(offsets) - len(kept)
                run = kept
            if run:
                self._watermarks[place] = run[-1][OFFSET]
                runs.append(Run(place, run))
        return Taken(runs, unowned, stale, restarted)


def _from_the_fall(run: Sequence[Record], watermark: int) -> list[Record]:
    """The records from the first one on whose offset goes back."""
    before = [watermark, *map(_offset_of, run)]
    falls = (n for n, record in enumerate(run) if record[OFFSET] <= before[n])
    return list(run[next(falls) :])


@dataclass(slots=True)
class Share:
    """What is buffered, or was taken, of one partition."""

    records: list[Record] = field(default_factory=list)
    size: int = 0
    """Bytes of them."""


class Buffer:
    """A queue per partition; partitions take turns where not everything fits."""

    def __init__(self) -> None:
        self._queues: dict[Place, Share] = {}
        self.count = 0
        self.size = 0

    @property
    def places(self) -> tuple[Place, ...]:
        """Partitions with records."""
        return tuple(self._queues)

    def add(self, runs: Iterable[Run]) -> int:
        """Appends records and returns their size in bytes."""
        shares = [(place, Share(records, size_of(records))) for place, records in runs]
        for place, share in shares:
            self._put(place, share)
        return sum(share.size for _, share in shares)

    def drop(self, place: Place) -> int:
        """Throws a partition's records away and returns how many they were."""
        queue = self._remove(place)
        return len(queue.records)

    def drop_below(self, place: Place, offset: int) -> int:
        """Throws away what lies below an offset and returns how many records that were."""
        return self._drop_all_but(place, lambda record: record[OFFSET] >= offset)

    def drop_same(self, place: Place, records: Iterable[Record]) -> int:
        """Throws away what is the same as these records; returns how many that were."""
        same = {record[OFFSET]: record[:CLAIM] for record in records}
        return self._drop_all_but(place, lambda one: same.get(one[OFFSET]) != one[:CLAIM])

    def take(self, room: Room) -> dict[Place, Share]:
        """Takes what fits. A partition whose records did not all fit goes last the next time."""
        taken: dict[Place, Share] = {}
        requests, size = room
        for place, queue in list(self._queues.items()):
            if len(queue.records) > requests or queue.size > size:
                share = _fitting(queue.records, Room(requests, size))
                if share.records:
                    taken[place] = share
                    self._remove(place)
                    if rest := queue.records[len(share.records) :]:
                        self._put(place, Share(rest, queue.size - share.size))
                break
            self._remove(place)
            taken[place] = queue
            requests, size = requests - len(queue.records), size - queue.size
        return taken

    def _drop_all_but(self, place: Place, kept: Callable[[Record], bool]) -> int:
        queue = self._remove(place)
        left = list(filter(kept, queue.records))
        if left:
            self.add([Run(place, left)])
        return len(queue.records) - len(left)

    def _put(self, place: Place, share: Share) -> None:
        queue = self._queues.setdefault(place, Share())
        queue.records += share.records
        queue.size += share.size
        self.count += len(share.records)
        self.size += share.size

    def _remove(self, place: Place) -> Share:
        queue = self._queues.pop(place, None)
        if queue is None:
            return Share()
        self.count -= len(queue.records)
        self.size -= queue.size
        return queue


def _rising(run: Sequence[Record], watermark: int) -> list[Record]:
    kept: list[Record] = []
    for record in run:
        if record[OFFSET] > watermark:
            watermark = record[OFFSET]
            kept.append(record)
    return kept


def _fitting(records: Sequence[Record], room: Room) -> Share:
    """The first records, as long as anything is free: the last one may be of any size."""
    fitting: list[Record] = []
    total = 0
    for record in records[: max(0, room.requests)]:
        if total >= room.size:
            break
        total += record_size(record)
        fitting.append(record)
    return Share(fitting, total)
