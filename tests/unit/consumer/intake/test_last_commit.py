"""The last commit before the group is left in peace: made in this membership, or not at all."""

from __future__ import annotations

import pytest

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import Answered, Drop, Place, ReadBack, SendCommit
from consumer.intake.flow_control import Room
from consumer.intake.offset_metadata import LowMark, UnfinishedGap
from consumer.intake.unfinished import Unfinished
from tests.support.consumer_records import records

A: Place = ("t", 0)
PLENTY = Room(1000, 1 << 20)


def with_two_committed() -> tuple[Commit, Assignment]:
    """A member whose first two records are committed, under the token 1;me-1;."""
    assignment = Assignment()
    commit = Commit(assignment, "me", Unfinished())
    commit.assigned([A])
    commit.polled(assignment.take(records(A, [0, 1])).runs)
    commit.next(100.0, PLENTY)
    commit.answered(Answered("1;me-1;", None, {A: None}))
    return commit, assignment


@pytest.mark.parametrize(
    "error, found, told",
    [
        ("UNKNOWN_MEMBER_ID", 2, []),
        (None, 3, [SendCommit({A: 3}, "1;me-3;", {A: LowMark(1, 0, 1)})]),
    ],
)
def test_a_member_that_was_put_out_while_it_stopped_tells_nothing_in_the_name_of_another(
    error: str | None, found: int, told: list[SendCommit]
) -> None:
    commit, assignment = with_two_committed()
    commit.polled(assignment.take(records(A, [2])).runs)
    commit.next(100.0, PLENTY)
    commit.stop()
    commit.answered(Answered("1;me-2;", error, {A: error}))
    commit.read_back({A: (found, f"1;me-{found - 1};0")}, 100.0)
    commit.marks.finished(records(A, [0]))
    assert commit.tell_marks(100.0) == told


@pytest.mark.parametrize(
    "answer, readable",
    [
        (Answered("1;me-2;", "_FATAL", {A: "_FATAL"}), True),
        (Answered("1;me-2;", "_FATAL", {A: "_FATAL"}), False),
        (Answered("1;me-2;", "_FATAL", {}, sent=False), False),
        (Answered("1;me-2;", "UNKNOWN_MEMBER_ID", {}, sent=False), False),
    ],
    ids=["answered", "unreadable", "refused", "no member"],
)
def test_a_client_that_commits_nothing_any_more_holds_up_no_end(
    answer: Answered, *, readable: bool
) -> None:
    commit, _ = with_two_committed()
    commit.marks.finished(records(A, [0, 1]))
    commit.stop()
    assert commit.tell_marks(100.0)
    commit.answered(answer)
    commit.read_back({A: (2, "1;me-1;0")} if readable else {}, 100.0)
    assert commit.open_since is None
    assert commit.next(200.0, PLENTY) == []
    assert not commit.lost


@pytest.mark.parametrize("ours", [None, "read again by nobody", "read again off"])
def test_what_a_failed_client_cannot_read_back_is_waited_for_only_where_it_would_run_here(
    ours: str | None,
) -> None:
    assignment = Assignment()
    commit = Commit(assignment, "me", None if ours == "read again off" else Unfinished())
    worn = {A: UnfinishedGap(0, 2, times=9)} if ours == "read again by nobody" else {}
    commit.assigned([A], worn)
    commit.polled(assignment.take(records(A, [0, 1])).runs)
    commit.next(100.0, PLENTY)
    commit.answered(Answered("1;me-1;", "_FATAL", {A: "_FATAL"}))
    commit.read_back({}, 100.0)
    assert commit.open_since is not None, "another client may take its place"
    commit.stop()
    assert commit.next(200.0, PLENTY) == [ReadBack((A,))]
    dropped = commit.read_back({}, 200.0)
    assert (commit.open_since is None) == (ours is None)
    assert dropped == ([] if ours else [Drop(A, 2, "put out of the group")])
    assert not commit.lost
    assert commit.tell_marks(200.0) == []
