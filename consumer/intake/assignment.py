"""Which partitions this process owns, and up to where it has taken their records.

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

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter, lt
from typing import NamedTuple

from consumer.intake.events import Place
from feedback.contract.record import OFFSET, PARTITION, TOPIC, Record

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
    restarted: list[Place]
    """Partitions whose log is another one from these records on."""


class Assignment:
    """The partitions of this process. Owned by the loop's thread."""

    def __init__(self) -> None:
        self._generations: dict[Place, int] = {}
        self._watermarks: dict[Place, int] = {}
        self._resetting: set[Place] = set()
        """Their offsets may go back once: the client starts anew there."""
        self._restarted: set[Place] = set()
        """Their present generation began with another log."""
        self._last = 0

    def assign(self, places: Iterable[Place]) -> None:
        """Partitions are ours from now on, each in a new generation, without a watermark."""
        for place in places:
            self._begin(place)
            self._restarted.discard(place)

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
            self._restarted.discard(place)

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

    def restarted(self, place: Place) -> bool:
        """Whether the present generation has another log than the one before it."""
        return place in self._restarted

    def raise_watermark(self, place: Place, offset: int) -> None:
        """Records up to `offset` were taken in an earlier assignment and are not taken again."""
        if place in self._watermarks:
            self._watermarks[place] = max(self._watermarks[place], offset)

    def take(self, records: Sequence[Record]) -> Taken:
        """Sorts a batch by partition and takes what is ours and new."""
        runs: list[Run] = []
        unowned = stale = 0
        restarted: list[Place] = []
        for place, group in groupby(records, key=_place_of):
            run = list(group)
            watermark = self._watermarks.get(place)
            if watermark is None:
                unowned += len(run)
                continue
            offsets = list(map(_offset_of, run))
            if offsets[0] <= watermark or not all(map(lt, offsets, offsets[1:])):
                if place in self._resetting:
                    self._begin(place)
                    self._restarted.add(place)
                    restarted.append(place)
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


def _rising(run: Sequence[Record], watermark: int) -> list[Record]:
    kept: list[Record] = []
    for record in run:
        if record[OFFSET] > watermark:
            watermark = record[OFFSET]
            kept.append(record)
    return kept
