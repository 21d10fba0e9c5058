"""Low marks: what commits tell, and what becomes of records by whether any are told."""

from __future__ import annotations

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import Answered, Deliver, Drop, SendCommit
from consumer.intake.flow_control import Room
from consumer.intake.marks import TELL_PAUSE, Marks
from consumer.intake.offset_metadata import LowMark, UnfinishedGap
from consumer.intake.open_commit import Piece
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import OFFSET, is_read_again, may_have_begun
from tests.support.consumer_records import records

A, B = ("t", 0), ("t", 1)
PLENTY = Room(1000, 1 << 20, idle=True)


def test_where_nothing_is_read_again_nothing_is_told() -> None:
    marks = Marks(None, "1;me-")
    marks.assigned([A], {A: UnfinishedGap(2, 5)})
    marks.finished(records(A, [2]))
    marks.given_up(records(A, [3]))
    assert marks.of({A: Piece(1, 5, [], 0)}) == {}
    assert marks.least(A, 3) == 3
    assert marks.risen(0.0) == {}
    assert marks.last_words([A], {A: 5}) == ({}, {})
    marks.restarted([A])
    marks.revoked([A])


def test_a_gap_of_this_process_s_own_was_not_ended_by_it() -> None:
    piece = Piece(1, 5, [], 0)
    told = []
    for token in ("1;other-7;", "1;me-7;"):
        marks = Marks(Unfinished(), "1;me-")
        marks.assigned([A], {A: UnfinishedGap(2, 5, times=3, token=token)})
        told.append(marks.of({A: piece})[A])
        assert piece.mark == told[-1]
    assert told == [LowMark(2, 4), LowMark(2, 3)]


def test_a_last_word_of_this_process_s_own_counts_no_time_less() -> None:
    """It has not counted the time that it ended."""
    marks = Marks(Unfinished(), "1;me-")
    marks.assigned([A], {A: UnfinishedGap(2, 5, 3, "1;me-7;", 2)})
    assert marks.of({A: Piece(1, 5, [], 0)}) == {A: LowMark(2, 4)}


def test_what_this_process_has_not_begun_it_says_and_knows_where_a_connection_broke() -> None:
    """A commit was open. The partition comes back, or goes to another; the word may be lost."""
    assignment = Assignment()
    unfinished = Unfinished()
    commit = Commit(assignment, "me", unfinished)
    commit.assigned([A], {A: UnfinishedGap(0, 2, token="1;other-1;")})
    commit.polled(assignment.take(records(A, range(6))).runs)
    [sent] = commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    commit.connection_lost()
    commit.answered(Answered(sent.metadata, None, {}))
    commit.marks.departed(records(A, [0, 1, 2]), records(A, [4, 5]))  # 3 runs on
    word = commit.last_word([A])
    assert word is not None
    # Late bytes would put it back to the same offset, with a lower mark.
    assert (word.offsets, word.marks) == (sent.offsets, {A: LowMark(3, 0, 3)})
    commit.revoked([A])
    begun = {}
    for token in (sent.metadata, "1;other-2;"):
        commit.assigned([A], {A: UnfinishedGap(0, 6, token=token)})
        delivered = unfinished.marked(A, records(A, range(6)))
        begun[token] = [r[OFFSET] for r in delivered if may_have_begun(r)]
    assert begun == {sent.metadata: [3, 4, 5], "1;other-2;": [0, 1, 2, 3, 4, 5]}


def test_marks_that_have_risen_are_told_at_most_so_often_and_at_once_at_the_end() -> None:
    unfinished = Unfinished()
    marks = Marks(unfinished, "1;me-")
    marks.assigned([A], {})
    unfinished.delivered(A, records(A, [0, 1]))
    unfinished.told(A, 2, LowMark(0))
    assert marks.risen(10.0) == {}
    marks.finished(records(A, [0]))
    assert marks.risen(10.0 + TELL_PAUSE / 2) == {}
    assert marks.risen(10.0 + TELL_PAUSE) == {A: 2}
    marks.going(10.0 + TELL_PAUSE)
    assert marks.risen(10.0 + TELL_PAUSE) == {A: 2}


def test_what_is_confirmed_after_its_partition_has_gone_is_left_to_its_next_owner() -> None:
    assignment = Assignment()
    commit = Commit(assignment, "me", Unfinished())
    commit.assigned([A, B], {B: UnfinishedGap(3, 5, token="1;other-1;")})
    for place, offsets in ((A, [0, 1]), (B, [3, 4, 5])):
        commit.polled(assignment.take(records(place, offsets)).runs)
    [sent] = commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    commit.revoked([A])
    dropped, deliver = commit.answered(Answered(sent.metadata, None, {A: None, B: None}))
    assert dropped == Drop(A, 2, "read again by its next owner")
    assert isinstance(deliver, Deliver)
    assert [is_read_again(record) for record in deliver.records] == [True, True, False]
    assert commit.counts["read again"] == 2
