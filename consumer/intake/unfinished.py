"""What of each partition is delivered and not finished, and the low marks that follow. Pure.

The *low mark* of a partition is its lowest offset that is not finished. Each commit tells it, so
that whoever is assigned the partition next knows from where to read. What it reads below the
committed offset (the *gap*) may have been run: such records are marked, and the journal answers for
them. Memory is bounded by what is in hand.

Records that this process still has in hand from an earlier assignment of a partition (`left`) are
not taken again; they hold the mark down like any other. A topic that was deleted and made anew has
other records at the same offsets: a record is known by its timestamp, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from consumer.intake.assignment import Run
from consumer.intake.events import NO_GAPS, Place
from consumer.intake.offset_metadata import LowMark, UnfinishedGap
from feedback.contract.record import OFFSET, TIMESTAMP, Record, read_again

NEVER: Final = 1 << 63
"""Above all offsets."""


@dataclass(slots=True)
class _Reading:
    """One assignment of a partition."""

    next: int | None = None
    """The lowest offset that was not delivered, here or before; None before anything is known."""
    polled_to: int = 0
    """Behind the last that was polled."""
    new_to: int = 0
    """Behind the last of these that was to be delivered: the others are `left`."""
    first: int = NEVER
    """Where it begins, once that is known: what is in hand below it was read before."""
    floor: int = 0
    """Below it records are read again."""
    begun: int = 0
    """Those from here on may have been begun by others."""
    left: bool = False
    """Who had it before has let it go in peace, and may be at those yet."""
    gap: UnfinishedGap | None = None
    """As it was found."""
    given_up: int | None = None
    """The lowest offset that was delivered and will not start here."""
    committed: int | None = None
    """The last offset known to be committed, in this assignment or where it began with a gap."""
    told: LowMark | None = None
    """The mark that went with it."""
    ours: bool = False
    """It was committed in this assignment."""

    def pass_left(self) -> None:
        """What is in hand from before is not delivered again; it holds the mark by itself."""
        if self.next is not None and self.next >= self.new_to:
            self.next = max(self.next, self.polled_to)


class Unfinished:
    """Owned by the loop's thread."""

    def __init__(self) -> None:
        self._hand: dict[Place, dict[int, int]] = {}
        """Offsets in hand of the present assignment, rising, and their timestamps."""
        self._left: dict[Place, dict[int, int]] = {}
        """The same of earlier ones, in any order; never empty."""
        self._alone: set[Place] = set()
        """Partitions with some of a log that is gone among them: nobody else can read those."""
        self._read: dict[Place, _Reading] = {}
        self._gone: dict[Place, int] = {}
        """Of partitions that are gone, the lowest offset that may have been begun by then, and was
        not finished or was refused."""

    # Partitions

    def assigned(self, places: Iterable[Place], gaps: Mapping[Place, UnfinishedGap]) -> None:
        """Partitions are ours from now on, with what has to be read again."""
        for place in places:
            self._gone.pop(place, None)
            if hand := self._hand.pop(place, None):
                self._left.setdefault(place, {}).update(hand)
            reading = self._read[place] = _Reading()
            if (gap := gaps.get(place)) is not None:
                reading.next = reading.first = gap.mark
                reading.floor, reading.gap = gap.committed, gap
                reading.begun, reading.left = gap.begun or 0, gap.begun is not None
                reading.committed = gap.committed
                # What was begun may have been filled in here: see marks.py.
                reading.told = LowMark(gap.mark, gap.times)

    def revoked(self, places: Iterable[Place]) -> None:
        """Partitions are gone; what is in hand of them stays in hand."""
        for place in places:
            if (reading := self._read.get(place)) is not None:
                low = self._lowest(place, NEVER)
                if low < NEVER:
                    # What is finished above a mark that stands is read again as well: others may
                    # have begun it before, and here it was refused.
                    stands = 0 if reading.told is None else reading.told.offset
                    self._gone[place] = self._begun(place, min(low, stands), NEVER)
                del self._read[place]

    def begun_before(self, place: Place) -> int | None:
        """The lowest offset that may have been begun and is not done of a partition that is gone.

        None: not known.
        """
        return self._gone.get(place)

    def restarted(self, places: Collection[Place]) -> None:
        """Partitions have another log, which may begin as the one before it did."""
        self.assigned(places, NO_GAPS)
        self._alone.update(place for place in places if place in self._left)

    # Records

    def polled(self, runs: Iterable[Run]) -> list[Run]:
        """What was read, without what is in hand from an earlier assignment."""
        found: list[Run] = []
        for place, records in runs:
            reading, left = self._read[place], self._left.get(place)
            if reading.next is None:
                reading.next = reading.first = records[0][OFFSET]
            new = records
            if left is not None:
                new = [r for r in records if left.get(r[OFFSET]) != r[TIMESTAMP]]
            if new:
                found.append(Run(place, new))
                reading.new_to = new[-1][OFFSET] + 1
            reading.polled_to = records[-1][OFFSET] + 1
            reading.pass_left()
        return found

    def marked(self, place: Place, records: Sequence[Record]) -> list[Record]:
        """The records to deliver, those that are read again marked as such."""
        reading = self._read[place]
        floor, begun, left = reading.floor, reading.begun, reading.left
        if records[0][OFFSET] >= floor:
            return list(records)
        return [
            read_again(r, begun=r[OFFSET] >= begun, left=left) if r[OFFSET] < floor else r
            for r in records
        ]

    def floor(self, place: Place) -> int:
        """No commit of a partition may lie below it."""
        reading = self._read.get(place)
        return 0 if reading is None else reading.floor

    def worn_to(self, place: Place) -> int:
        """What lies below it of a partition is told no more: it is this process's alone.

        So is all that is in hand of one that is not begun (again): from what was told of it, it was
        let go when it went the time before. And of one of whose log before this one some is in hand
        yet: its offsets say nothing of the new one.
        """
        reading = self._read.get(place)
        if reading is None or place in self._alone:
            return NEVER
        return reading.first if reading.gap is None else reading.gap.worn_to

    def raise_floor(self, place: Place, offset: int, read_from: int) -> None:
        """What lies below `offset` may have been run, and may yet be read from `read_from` on."""
        reading = self._read[place]
        reading.floor = max(reading.floor, offset)
        reading.begun = min(reading.begun, read_from)
        if reading.next is None:
            reading.next = reading.first = read_from

    def delivered(self, place: Place, records: Sequence[Record]) -> None:
        """Records of the present assignment are in hand, in order."""
        new = {record[OFFSET]: record[TIMESTAMP] for record in records}
        self._hand.setdefault(place, {}).update(new)
        reading = self._read[place]
        reading.next = records[-1][OFFSET] + 1
        reading.pass_left()

    def keep(self, place: Place, records: Sequence[Record], *, read_here: bool) -> list[Record]:
        """Records of an assignment that is over are in hand: those that are not read again here.

        `read_here`: there is a later assignment, which is not being let go either.
        """
        if read_here:
            reading = self._read[place]
            reading.committed = None  # theirs may lie beyond what was found
            if reading.gap is not None:
                records = [record for record in records if record[OFFSET] < reading.gap.mark]
        self._hold(place, records)
        return [read_again(record) for record in records]

    def keep_alone(self, place: Place, records: Sequence[Record]) -> None:
        """Records of a log that is gone are in hand, whoever has the partition now."""
        if records:
            self._hold(place, records)
            self._alone.add(place)

    def _hold(self, place: Place, records: Sequence[Record]) -> None:
        if records:
            left = self._left.setdefault(place, {})
            left.update({record[OFFSET]: record[TIMESTAMP] for record in records})

    def finished(self, records: Iterable[Record]) -> None:
        """Records are done, or answered for; claimed rows among them are nobody's."""
        hand, left = self._hand, self._left
        for record in records:
            held = hand.get(record[:2])
            if held is not None and held.get(record[OFFSET]) == record[TIMESTAMP]:
                del held[record[OFFSET]]
        if left:
            self._leave(records)

    def given_up(self, records: Iterable[Record]) -> None:
        """Records will not start here: the next owner of their partition reads them again."""
        for record in records:
            place, offset = record[:2], record[OFFSET]
            reading = self._read.get(place)
            if reading is not None:
                low = reading.given_up
                reading.given_up = offset if low is None else min(low, offset)
        self.finished(records)

    def _leave(self, records: Iterable[Record]) -> None:
        for record in records:
            left = self._left.get(record[:2])
            if left is not None and left.get(record[OFFSET]) == record[TIMESTAMP]:
                del left[record[OFFSET]]
                if not left:
                    del self._left[record[:2]]
                    self._alone.discard(record[:2])

    # Marks

    def mark(
        self, place: Place, committed: int, *, read_to: int | None = None, going: bool = False
    ) -> LowMark:
        """The mark to tell with a commit.

        `read_to`: where what goes with it ends; None: where what was delivered does. `going`: the
        partition is handed over in peace, so that this time does not count as one that its gap was
        read, and of what was not begun more can be said.
        """
        low, gap = self._lowest(place, committed), self._read[place].gap
        stands = gap is not None and low <= gap.mark
        times = gap.times if gap is not None and stands else 0
        if going:
            begun = self._begun(place, low, committed) if low < committed else None
            return LowMark(low, times, begun)
        if gap is None or not stands:
            return LowMark(low)
        # Of what this process has not read it would be nobody's.
        worn_to = min(gap.worn_to, self._next(place, committed) if read_to is None else read_to)
        return LowMark(min(max(low, worn_to), committed), times + 1)

    def _next(self, place: Place, committed: int) -> int:
        """The lowest offset that has not been delivered, below `committed`."""
        found = self._read[place].next
        return committed if found is None else min(found, committed)

    def _lowest(self, place: Place, committed: int) -> int:
        """The lowest offset that is not finished."""
        reading, hand, left = self._read[place], self._hand.get(place), self._left.get(place)
        low = self._next(place, committed)
        if hand:
            low = min(low, next(iter(hand)))
        if left:
            low = min(low, *left)
        return low if reading.given_up is None else min(low, reading.given_up)

    def _begun(self, place: Place, low: int, committed: int) -> int:
        """The lowest offset that may have been begun and is not finished."""
        reading, hand, left = self._read[place], self._hand.get(place), self._left.get(place)
        begun = committed
        if hand:
            begun = min(begun, next(iter(hand)))
        if left:
            begun = min(begun, *left)
        others = max(low, reading.begun)
        return min(begun, others) if others < reading.floor else begun

    def told(self, place: Place, committed: int, mark: LowMark) -> None:
        """A commit of the present assignment landed, with this mark."""
        reading = self._read[place]
        reading.committed, reading.told, reading.ours = committed, mark, True

    def risen(self, *, going: bool = False) -> dict[Place, int]:
        """The committed offsets of partitions whose mark is worth telling anew."""
        found: dict[Place, int] = {}
        for place, reading in self._read.items():
            offset, told = reading.committed, reading.told
            if offset is None or told is None:
                continue
            if going:
                worth = self.mark(place, offset, going=True) != told
            else:
                worth = self._has_risen(place, offset, told)
            if worth:
                found[place] = offset
        return found

    def _has_risen(self, place: Place, committed: int, told: LowMark) -> bool:
        # What is worn is told once more where what stood at the mark has ended. That it would be
        # worn further is told with a commit that hands records out, and by none for itself.
        mark = self.mark(place, committed)
        risen = mark.times < told.times
        return risen or (mark.times == told.times and mark.offset > told.offset)

    def to_tell(self, place: Place) -> int | None:
        """The offset of a partition's last word: the last one known to be committed.

        None where that would say nothing new: a topic may have been deleted and made anew
        meanwhile, and to its new log the offset would do harm. So would it where nothing was
        committed in the present assignment, and no more is finished than was found.
        """
        reading = self._read.get(place)
        if reading is None or reading.committed is None or reading.told is None:
            return None
        if reading.ours:
            worth = self.mark(place, reading.committed, going=True) != reading.told
        else:
            worth = self._has_risen(place, reading.committed, reading.told)
        return reading.committed if worth else None
