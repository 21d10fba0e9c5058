from __future__ import annotations

import pytest

from consumer.intake.assignment import Buffer
from consumer.intake.flow_control import HOLD, FlowControl, Room
from feedback.contract.record import OFFSET, record_size
from tests.support.consumer_records import records, run_of

A, B = ("t", 0), ("t", 1)
PLENTY = Room(1000, 1 << 20)
SIZE = record_size(records(A, [0])[0])


def offsets(taken: object) -> dict[object, list[int]]:
    return {p: [r[OFFSET] for r in s.records] for p, s in taken.items()}  # type: ignore[attr-defined]


def test_everything_is_taken_where_it_fits() -> None:
    buffer = Buffer()
    assert buffer.add([run_of(A, [1, 2]), run_of(B, [7])]) == 3 * SIZE
    assert (buffer.count, buffer.size) == (3, 3 * SIZE)
    assert offsets(buffer.take(PLENTY)) == {A: [1, 2], B: [7]}
    assert (buffer.count, buffer.size, buffer.places) == (0, 0, ())


def test_partitions_take_turns_where_not_everything_fits() -> None:
    buffer = Buffer()
    buffer.add([run_of(A, range(5)), run_of(B, range(5))])
    room = Room(3, 1 << 20)
    assert offsets(buffer.take(room)) == {A: [0, 1, 2]}
    assert offsets(buffer.take(room)) == {B: [0, 1, 2]}
    assert offsets(buffer.take(room)) == {A: [3, 4], B: [3]}
    assert offsets(buffer.take(room)) == {B: [4]}


def test_bytes_bound_what_is_taken() -> None:
    buffer = Buffer()
    buffer.add([run_of(A, range(5))])
    assert offsets(buffer.take(Room(100, 2 * SIZE))) == {A: [0, 1]}
    assert buffer.take(Room(100, 0)) == buffer.take(Room(100, -SIZE)) == {}
    assert buffer.take(Room(0, 1 << 20)) == {}
    assert buffer.count == 3


@pytest.mark.parametrize("large", [64 * SIZE, 62 * SIZE])
def test_a_large_record_goes_while_anything_is_free_and_nothing_waits_behind_it(large: int) -> None:
    """Something may always be in hand: rows of the waiting queue, or what nobody may end yet."""
    flow, buffer, in_hand = FlowControl(5000, 64 * SIZE), Buffer(), 2 * SIZE + 1
    held = buffer.add([run_of(A, [0, 1], b"x" * large), run_of(B, range(20))])
    for now in (0.0, HOLD):
        flow.look(1 + 22, in_hand + held, now)
    assert flow.paused
    assert offsets(buffer.take(flow.room(1, in_hand))) == {A: [0]}
    assert buffer.take(flow.room(2, in_hand + held // 2)) == {}, "one at a time"
    assert offsets(buffer.take(flow.room(1, in_hand))) == {B: [*range(20)], A: [1]}
    assert (buffer.count, buffer.size, buffer.places) == (0, 0, ())


def test_dropping() -> None:
    buffer = Buffer()
    buffer.add([run_of(A, range(5)), run_of(B, [1])])
    assert buffer.drop(B) == 1
    assert buffer.drop(B) == 0
    assert buffer.drop_below(A, 3) == 3
    assert offsets(buffer.take(PLENTY)) == {A: [3, 4]}
    assert buffer.drop_below(A, 3) == 0
