"""Which rows may be on their way at once, so that each partition gets one set of messages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from feedback.outbox.relay.batch import ClaimedRow
from feedback.partitions import partition_of

OVERHEAD: Final = 512
"""Bytes, more than those that a message has beside its own content."""
_OF_HEADER: Final = 10
"""Bytes, as OVERHEAD, for each header: both of its lengths."""
_MOST: Final = 10_000
"""Messages; librdkafka's batch.num.messages."""
PARTITIONER: Final = "murmur2_random"
"""As our client and Java's choose, and partition_of()."""


class SetBounds(NamedTuple):
    """What fits into one set."""

    bytes: int
    messages: int
    by_key: bool = True
    """Whether keys tell their partitions."""


def set_bounds(properties: Mapping[str, Any]) -> SetBounds:
    """Of a producer with these properties of librdkafka's, `batch.size` among them."""
    most = int(properties.get("batch.num.messages", _MOST))
    by_key = properties.get("partitioner") == PARTITIONER
    return SetBounds(int(properties["batch.size"]), most, by_key)


class PartitionSets:
    """Of one topic. Where keys don't tell their partitions all of it counts as one."""

    def __init__(self, bounds: SetBounds, number: Callable[[], int]) -> None:
        """`number` asks how many partitions there are; 0 where nobody says so."""
        self._bounds = bounds
        self._ask = number
        self._number: int | None = None if bounds.by_key else 0
        self._expected: dict[int, int] = {}
        """Row -> partition, of the last wave."""

    def fill(self, rows: Sequence[ClaimedRow]) -> list[ClaimedRow]:
        """Those that fit, from the first on: of a partition no more once one did not."""
        sizes = [row.size + OVERHEAD + _OF_HEADER * len(row.headers) for row in rows]
        self._expected.clear()
        if sum(sizes) <= self._bounds.bytes and len(rows) <= self._bounds.messages:
            return list(rows)
        if self._number is None:
            self._number = self._ask()
        found: list[ClaimedRow] = []
        filled: dict[int, tuple[int, int]] = {}
        full: set[int] = set()
        for row, size in zip(rows, sizes, strict=True):
            place = partition_of(row.lane, self._number) if self._number else -1
            if place in full:
                continue
            before, number = filled.get(place, (0, 0))
            if number and (before + size > self._bounds.bytes or number >= self._bounds.messages):
                full.add(place)
                continue
            filled[place] = before + size, number + 1
            found.append(row)
            if self._number:
                self._expected[row.seq] = place
        return found

    def went(self, row: ClaimedRow, partition: int) -> None:
        """It is there. Elsewhere than its key says, others may be, too."""
        if self._expected.get(row.seq, partition) != partition:
            self._number = 0
