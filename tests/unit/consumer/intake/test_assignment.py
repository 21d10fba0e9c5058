from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer.intake.assignment import Assignment
from feedback.contract.record import OFFSET
from tests.support.consumer_records import records

A, B = ("t", 0), ("t", 1)


def taken(assignment: Assignment, *batches: object) -> list[tuple[object, list[int]]]:
    batch = [record for part in batches for record in part]  # type: ignore[attr-defined]
    return [(r.place, [x[OFFSET] for x in r.records]) for r in assignment.take(batch).runs]


def test_records_of_partitions_that_are_not_ours_are_not_taken() -> None:
    assignment = Assignment()
    assignment.assign([A])
    result = assignment.take([*records(A, [0, 1]), *records(B, [0, 1, 2])])
    assert [(r.place, len(r.records)) for r in result.runs] == [(A, 2)]
    assert (result.unowned, result.stale) == (3, 0)


def test_no_offset_is_taken_twice_in_one_assignment() -> None:
    assignment = Assignment()
    assignment.assign([A])
    assert taken(assignment, records(A, [5, 6])) == [(A, [5, 6])]
    result = assignment.take(records(A, [4, 5, 6, 7]))
    assert [r[OFFSET] for r in result.runs[0].records] == [7]
    assert result.stale == 3
    assert assignment.take(records(A, [7])).runs == []


def test_offsets_go_back_where_the_client_starts_anew_and_only_once() -> None:
    assignment = Assignment()
    assignment.assign([A, B])
    taken(assignment, records(A, [5, 6]), records(B, [5, 6]))
    before = assignment.generation(A)
    assignment.offset_reset(A)
    # What was fetched before still comes; then the other log, which may be longer or not.
    assert taken(assignment, records(A, [7, 8])) == [(A, [7, 8])]
    result = assignment.take([*records(A, [9]), *records(B, [0, 1]), *records(A, [10, 0, 1])])
    assert [[r[OFFSET] for r in run.records] for run in result.runs] == [[0, 1]]
    assert (result.restarted, result.stale) == ({A: before}, 4)
    assert assignment.generation(A) != before
    assert taken(assignment, records(A, [0, 1, 2])) == [(A, [2])]
    # A reset forwards, as after old records were deleted, is none.
    assignment.offset_reset(B)
    assert taken(assignment, records(B, [20])) == [(B, [20])]
    assignment.revoke([B])
    assignment.assign([B])
    taken(assignment, records(B, [5]))
    assert assignment.take(records(B, [0])).restarted == {}


def test_a_new_assignment_begins_wherever_the_group_stands() -> None:
    # An operator may have put the offset back, and records dropped before their commit come again.
    assignment = Assignment()
    assignment.assign([A])
    taken(assignment, records(A, [5, 6]))
    assignment.revoke([A])
    assert taken(assignment, records(A, [7])) == []
    assignment.assign([A])
    assert taken(assignment, records(A, [2, 3])) == [(A, [2, 3])]


def test_an_assignment_without_a_revocation_before_it_begins_anew_as_well() -> None:
    assignment = Assignment()
    assignment.assign([A])
    taken(assignment, records(A, [5, 6]))
    assignment.assign([A])
    assert taken(assignment, records(A, [2, 3])) == [(A, [2, 3])]


def test_generations_are_never_used_twice() -> None:
    assignment = Assignment()
    assignment.assign([A, B])
    first = assignment.generation(A)
    assignment.revoke([A])
    assert assignment.generation(A) is None
    assert assignment.places == (B,)
    assignment.assign([A])
    assert assignment.generation(A) not in (None, first, assignment.generation(B))
    assignment.revoke([("other", 1)])


def test_a_raised_watermark_skips_what_was_taken_before_and_never_sinks() -> None:
    assignment = Assignment()
    assignment.assign([A])
    assignment.raise_watermark(A, 9)
    assignment.raise_watermark(A, 3)
    assignment.raise_watermark(B, 3)
    assert taken(assignment, records(A, [8, 9, 10])) == [(A, [10])]


def test_offsets_that_do_not_rise_within_a_batch_are_left() -> None:
    assignment = Assignment()
    assignment.assign([A])
    assert taken(assignment, records(A, [1, 2, 2, 1, 5])) == [(A, [1, 2, 5])]


def test_partitions_mixed_in_a_batch_keep_their_order() -> None:
    assignment = Assignment()
    assignment.assign([A, B])
    got = taken(assignment, records(A, [0]), records(B, [0, 1]), records(A, [1]))
    assert got == [(A, [0]), (B, [0, 1]), (A, [1])]


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 20)), max_size=60))
def test_what_is_taken_rises_strictly(batch: list[tuple[tuple[str, int], int]]) -> None:
    assignment = Assignment()
    assignment.assign([A])
    result = assignment.take([r for place, offset in batch for r in records(place, [offset])])
    offsets = [r[OFFSET] for run in result.runs for r in run.records]
    assert offsets == sorted(set(offsets))
    assert len(offsets) + result.stale + result.unowned == len(batch)
