"""Records that will not start here, in parts of which each is written at once."""

from __future__ import annotations

from itertools import chain

from feedback.contract.record import Record, size_of
from processing.ipc.frames import Park, PartAnswered, Refuse, ToMaintenance
from processing.pool.unstarted_parts import BYTES_AT_ONCE, RECORDS_AT_ONCE, UnstartedParts
from tests.support.maintenance import record


class Parts(UnstartedParts):
    """Keeps what it would send."""

    def __init__(self) -> None:
        self.ended: list[Record] = []
        super().__init__(self.ended.extend)
        self.sent: list[ToMaintenance] = []

    def send(self, frame: ToMaintenance) -> bool:
        self.sent.append(frame)
        return True

    @property
    def told(self) -> list[list[int]]:
        """Offsets, part by part."""
        frames = [frame for frame in self.sent if isinstance(frame, (Park, Refuse))]
        return [[one[2] for one in frame.records] for frame in frames]


def sized(number: int, size: int) -> Record:
    """A record that counts for so many bytes."""
    small = record(number)
    value = bytes(size - size_of([small]) + len(small[5] or b""))
    made: Record = (*small[:5], value, *small[6:])
    assert size_of([made]) == size
    return made


def test_a_part_is_bounded_by_number() -> None:
    parts = Parts()
    parts.park("parked", [record(n) for n in range(2 * RECORDS_AT_ONCE + 1)])
    assert list(map(len, parts.told)) == [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 1]
    assert list(chain.from_iterable(parts.told)) == list(range(2 * RECORDS_AT_ONCE + 1))
    parts.park("parked", [])
    assert len(parts.told) == 3


def test_a_part_is_bounded_by_bytes_and_what_is_larger_goes_alone() -> None:
    half, most = BYTES_AT_ONCE // 2, BYTES_AT_ONCE
    sizes = [half, half, half, half + 1, 1000, 3 * most, 1000, 1000, most]
    records = [sized(number, size) for number, size in enumerate(sizes)]
    together = [[0, 1], [2], [3, 4], [5], [6, 7], [8]]
    parts = Parts()
    parts.park("parked", records)
    parts.refuse("shutdown", records)
    assert parts.told == together * 2
    assert parts.refusing_bytes == 2 * sum(sizes)
    for part in range(1, 13):
        parts._answered(PartAnswered(part, len(parts.told[part - 1])))
    assert (len(parts.ended), parts.refusing) == (2 * len(sizes), 0)


def test_suspects_keep_their_starts_in_whatever_part_they_are() -> None:
    records = [sized(n, BYTES_AT_ONCE // 2) for n in range(5)]
    starts = [(n, 0) for n in range(5)]
    parts = Parts()
    parts.park_suspects("parked", list(zip(records, starts, [[(1, "x")]] * 5, strict=True)))
    assert parts.told == [[0, 1], [2, 3], [4]]
    frames = [frame for frame in parts.sent if isinstance(frame, Park)]
    assert [frame.starts for frame in frames] == [starts[:2], starts[2:4], starts[4:]]
