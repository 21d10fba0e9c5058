"""One set of messages for each partition, whatever the keys and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from feedback.outbox.relay.batch import ClaimedRow
from feedback.outbox.relay.producing import together
from feedback.outbox.relay.sets import OVERHEAD, PartitionSets, SetBounds, set_bounds
from feedback.partitions import partition_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PARTITIONS = 3
BOUNDS = SetBounds(10 * OVERHEAD, 6)


def rows_of(wanted: Iterable[tuple[int, int]]) -> list[ClaimedRow]:
    """By number of key and size of payload."""
    return [
        ClaimedRow(seq, f"r{seq}", "t", b"k%d" % key, b"x" * size, [], NOW, NOW, 0)
        for seq, (key, size) in enumerate(wanted)
    ]


def place(row: ClaimedRow) -> int:
    return partition_of(row.lane, PARTITIONS)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12 * OVERHEAD)), min_size=1, max_size=80),
    st.booleans(),
)
def test_each_wave_is_a_set_at_most_and_all_go_in_the_order_of_their_partitions(
    wanted: list[tuple[int, int]], known: bool
) -> None:
    sets = PartitionSets(BOUNDS, lambda: PARTITIONS if known else 0)
    rows = left = rows_of(wanted)
    went: list[ClaimedRow] = []
    while left:
        wave = sets.fill(left)
        assert wave, "it comes to its end"
        by_place = [place(row) if known else 0 for row in wave]
        for one, number in Counter(by_place).items():
            size = sum(r.size for r, where in zip(wave, by_place, strict=True) if where == one)
            assert number <= BOUNDS.messages
            assert number == 1 or size + number * OVERHEAD <= BOUNDS.bytes
        went += wave
        left = [row for row in left if row not in wave]
    for one in range(PARTITIONS):
        of_one = [row.seq for row in rows if place(row) == one]
        assert [row.seq for row in went if place(row) == one] == of_one


def test_what_fits_into_one_set_goes_and_nobody_is_asked() -> None:
    sets = PartitionSets(BOUNDS, lambda: 1 // 0)
    rows = rows_of([(n, 100) for n in range(6)])
    assert sets.fill(rows) == rows


def test_where_one_went_elsewhere_all_count_as_of_one_partition() -> None:
    sets = PartitionSets(BOUNDS, lambda: PARTITIONS)
    rows = rows_of([(n % 10, 100) for n in range(20)])
    wave = sets.fill(rows)
    assert len(wave) > BOUNDS.messages
    for row in wave:
        sets.went(row, place(row))
    assert sets.fill(rows) == wave
    sets.went(wave[0], place(wave[0]) + 1)
    assert sets.fill(rows) == rows[: BOUNDS.messages]


def test_bounds_are_those_of_the_producer() -> None:
    given = {"batch.size": "5000", "batch.num.messages": "7", "partitioner": "random"}
    assert set_bounds(together({}, 1_048_588)) == SetBounds(1_000_000, 10_000)
    assert set_bounds(together(given, 1_048_588)) == SetBounds(5_000, 7, by_key=False)
    sets = PartitionSets(set_bounds(together(given, 1_048_588)), lambda: PARTITIONS)
    assert len(sets.fill(rows_of([(n, 0) for n in range(20)]))) == 7
