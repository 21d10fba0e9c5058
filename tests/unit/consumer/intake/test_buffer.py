from __future__ import annotations

from consumer.intake.assignment import Buffer
from consumer.intake.flow_control import Room
from feedback.contract.record import OFFSET, record_size
from tests.support.consumer_records import records, run_of

A, B = ("t", 0), ("t", 1)
PLENTY = Room(1000, 1 << 20, idle=True)
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
    room = Room(3, 1 << 20, idle=False)
    assert offsets(buffer.take(room)) == {A: [0, 1, 2]}
    assert offsets(buffer.take(room)) == {B: [0, 1, 2]}
    assert offsets(buffer.take(room)) == {A: [3, 4], B: [3]}
    assert offsets(buffer.take(room)) == {B: [4]}


def test_bytes_bound_what_is_taken() -> None:
    buffer = Buffer()
    buffer.add([run_of(A, range(5))])
    assert offsets(buffer.take(Room(100, 2 * SIZE, idle=False))) == {A: [0, 1]}
    assert buffer.take(Room(100, SIZE - 1, idle=False)) == {}
    assert buffer.take(Room(0, 1 << 20, idle=False)) == {}
    assert buffer.count == 3


def test_a_record_larger_than_the_bound_goes_when_nothing_is_in_hand() -> None:
    buffer = Buffer()
    buffer.add([run_of(A, [0, 1], b"x" * 5000)])
    assert buffer.take(Room(100, 1000, idle=False)) == {}
    assert offsets(buffer.take(Room(100, 1000, idle=True))) == {A: [0]}


def test_dropping() -> None:
    buffer = Buffer()
    buffer.add([run_of(A, range(5)), run_of(B, [1])])
    assert buffer.drop(B) == 1
    assert buffer.drop(B) == 0
    assert buffer.drop_below(A, 3) == 3
    assert offsets(buffer.take(PLENTY)) == {A: [3, 4]}
    assert buffer.drop_below(A, 3) == 0
