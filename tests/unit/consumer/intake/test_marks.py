"""Low marks: what commits tell, and what becomes of records by whether any are told."""

from __future__ import annotations

import pytest

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import Answered, Deliver, Drop, SendCommit
from consumer.intake.flow_control import NO_ROOM, Room
from consumer.intake.marks import TELL_PAUSE, Marks
from consumer.intake.offset_metadata import MOST_TIMES, LowMark, UnfinishedGap
from consumer.intake.open_commit import Piece
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import OFFSET, is_read_again, may_have_begun
from tests.support.consumer_records import records

A, B = ("t", 0), ("t", 1)
PLENTY = Room(1000, 1 << 20)


def test_where_nothing_is_read_again_nothing_is_told() -> None:
    marks = Marks(None, "1;me-")
    marks.assigned([A], {A: UnfinishedGap(2, 5)})
    marks.finished(records(A, [2]))
    marks.given_up(records(A, [3]))
    assert marks.of({A: Piece(1, 5, [], 0)}) == {}
    assert marks.least(A, 3) == 3
    assert marks.risen(0.0) == {}
    assert marks.last_words([A], {A: Piece(1, 5, [], 0)}) == ({}, {})
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


@pytest.mark.parametrize("others, known", [(2, [3, 4, 5]), (None, [0, 1, 2, 3, 4, 5])])
def test_what_this_process_has_not_begun_it_says_and_knows_where_a_connection_broke(
    others: int | None, known: list[int]
) -> None:
    """A commit was open. The partition comes back, or goes to another; the word may be lost.

    Of the gap `others` had begun nothing, or it is not known: then it may have been finished here
    by a refusal, and no mark that stands says so.
    """
    assignment = Assignment()
    unfinished = Unfinished()
    commit = Commit(assignment, "me", unfinished)
    commit.assigned([A], {A: UnfinishedGap(0, 2, token="1;other-1;", begun=others)})
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
    assert begun == {sent.metadata: known, "1;other-2;": [0, 1, 2, 3, 4, 5]}


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


class Worn:
    """The sixth owner of a gap: its open commit tells a mark above two of the records with it."""

    def __init__(self) -> None:
        self.assignment = Assignment()
        self.commit = Commit(self.assignment, "me", Unfinished())
        self.assign(UnfinishedGap(3, 6, MOST_TIMES + 1, "1;dead-1;"))
        [sent] = self.commit.next(0.0, PLENTY)
        assert isinstance(sent, SendCommit)
        assert sent.marks == {A: LowMark(5, MOST_TIMES + 2)}
        self.sent = sent

    def assign(self, gap: UnfinishedGap) -> None:
        self.commit.assigned([A], {A: gap})
        self.commit.polled(self.assignment.take(records(A, range(gap.mark, 8))).runs)

    def lands(self) -> list[int]:
        """What is delivered then: all of it may have been begun."""
        actions = self.commit.answered(Answered(self.sent.metadata, None, {A: None}))
        found = [record for a in actions if isinstance(a, Deliver) for record in a.records]
        assert all(map(may_have_begun, found))
        return [record[OFFSET] for record in found]


def test_what_lies_below_a_mark_that_landed_runs_though_its_partition_has_gone() -> None:
    worn = Worn()
    worn.commit.revoked([A])
    assert worn.lands() == [3, 4], "who is assigned it begins at 5"
    assert worn.commit.counts["drop:read again by its next owner"] == 3
    # It comes back, and others have ended nothing of it: what is in hand is not taken again.
    worn.assign(UnfinishedGap(3, 8, MOST_TIMES + 2, "1;other-1;"))
    [sent] = worn.commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    worn.sent = sent
    assert worn.lands() == [5, 6, 7]


def test_what_lies_below_a_mark_is_not_run_twice_where_it_is_read_again_here() -> None:
    worn = Worn()
    worn.commit.revoked([A])
    worn.assign(UnfinishedGap(4, 6, MOST_TIMES + 1, "1;other-1;"))
    assert worn.lands() == [3]


@pytest.mark.parametrize("came_back", [False, True])
def test_what_lies_below_a_mark_runs_here_where_its_answer_comes_before_the_revocation(
    came_back: bool,
) -> None:
    """One poll brought both. None of it is read here any more, and its next owner begins at 5."""
    worn = Worn()
    if came_back:
        worn.commit.revoked([A])
        worn.assign(UnfinishedGap(4, 6, MOST_TIMES + 1, "1;other-1;"))
    worn.commit.last_word([A])
    assert worn.lands() == [3, 4]
    worn.commit.revoked([A])
    worn.assign(UnfinishedGap(3, 8, MOST_TIMES + 2, "1;other-1;"))
    [sent] = worn.commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    worn.sent = sent
    assert worn.lands() == [5, 6, 7], "the others are in hand"


def test_a_last_word_says_that_what_an_open_commit_may_deliver_may_be_begun() -> None:
    worn = Worn()
    word = worn.commit.last_word([A])
    assert word is not None
    assert word.marks == {A: LowMark(3, MOST_TIMES + 1, 3)}


@pytest.mark.parametrize(
    "sent,broken,lost", [(False, False, 0), (True, False, 2), (False, True, 2)]
)
def test_what_the_client_did_not_even_send_is_not_lost(sent: bool, broken: bool, lost: int) -> None:
    """Its next owner, who has committed beyond it since, has read it from the mark before."""
    worn = Worn()
    if broken:
        worn.commit.connection_lost()
    worn.commit.answered(Answered(worn.sent.metadata, "UNKNOWN_MEMBER_ID", {}, sent=sent))
    worn.commit.revoked([A])
    worn.commit.read_back({A: (9, "1;other-2;")}, 0.0)
    assert worn.commit.lost.total() == lost
    assert worn.commit.open_since is None


def test_what_lies_below_the_mark_of_a_commit_that_is_given_up_may_be_lost() -> None:
    worn = Worn()
    worn.commit.abandon()
    assert worn.commit.lost.total() == 2


class ComesBack:
    """A partition that comes back to where its last record, 2, still runs; 1 was given up."""

    def __init__(self, gap: UnfinishedGap) -> None:
        self.assignment = Assignment()
        self.commit = Commit(self.assignment, "me", Unfinished())
        self.commit.assigned([A])
        self.read(0, 1, 2)
        self.commit.marks.departed(records(A, range(gap.mark)), records(A, range(gap.mark, 2)))
        word = self.commit.last_word([A])
        assert word is not None
        assert word.marks == {A: LowMark(gap.mark, 0, 2)}
        self.commit.revoked([A])
        self.commit.assigned([A], {A: gap})

    def read(self, *offsets: int) -> None:
        self.commit.polled(self.assignment.take(records(A, offsets)).runs)
        self.tells(0.0)

    def tells(self, now: float) -> list[tuple[int, LowMark]]:
        """What is committed of it by then, and lands."""
        told = []
        for action in self.commit.next(now, PLENTY):
            assert isinstance(action, SendCommit)
            told.append((action.offsets[A], action.marks[A]))
            self.commit.answered(Answered(action.metadata, None, {A: None}))
        return told


@pytest.mark.parametrize("mark", [1, 2])
def test_the_end_of_what_was_in_hand_when_its_partition_came_back_is_told(mark: int) -> None:
    """No commit is due: the log may have nothing more for hours."""
    again = ComesBack(UnfinishedGap(mark, 3, 0, "1;me-9;", 2))
    again.read(*range(mark, 3))
    again.commit.marks.finished(records(A, [1]))
    assert again.tells(TELL_PAUSE) == ([(3, LowMark(2))] if mark == 1 else [])
    again.commit.marks.finished(records(A, [2]))
    assert again.tells(2 * TELL_PAUSE) == [(3, LowMark(3))]


@pytest.mark.parametrize("ended, told", [(True, {A: LowMark(3)}), (False, None)])
def test_it_is_told_at_the_latest_when_the_partition_goes_again(
    ended: bool, told: dict[tuple[str, int], LowMark] | None
) -> None:
    """Within the pause between two commits that only tell marks."""
    again = ComesBack(UnfinishedGap(2, 3, 0, "1;me-9;", 2))
    again.read(2)
    if ended:
        again.commit.marks.finished(records(A, [2]))
    assert again.tells(TELL_PAUSE / 2) == []
    word = again.commit.last_word([A])
    assert (word and (word.offsets, word.marks)) == (told and ({A: 3}, told))


def test_what_was_told_already_is_no_last_word() -> None:
    """The topic may have been made anew: its old offset would hide what the new log has."""
    assignment = Assignment()
    commit = Commit(assignment, "me", Unfinished())
    commit.assigned([A, B])
    commit.polled(assignment.take([*records(A, [0, 1]), *records(B, [0, 1])]).runs)
    [sent] = commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    commit.answered(Answered(sent.metadata, None, {A: None, B: None}))
    commit.marks.finished(records(A, [0, 1]))
    [told] = commit.next(TELL_PAUSE, PLENTY)
    assert isinstance(told, SendCommit)
    assert told.marks == {A: LowMark(2)}
    commit.answered(Answered(told.metadata, None, {A: None}))
    commit.marks.finished(records(B, [0, 1]))
    word = commit.last_word([A, B])
    assert word is not None
    assert (word.offsets, word.marks) == ({B: 2}, {B: LowMark(2)})


def test_it_is_not_told_while_a_commit_of_an_earlier_assignment_is_open() -> None:
    """That one may land, and lies further on."""
    again = ComesBack(UnfinishedGap(2, 3, 0, "1;me-9;", 2))
    again.commit.polled(again.assignment.take(records(A, [2, 3])).runs)
    [sent] = again.commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    again.commit.revoked([A])
    again.commit.assigned([A], {A: UnfinishedGap(2, 3, 0, "1;me-9;", 2)})
    again.commit.polled(again.assignment.take(records(A, [2])).runs)
    again.commit.marks.finished(records(A, [2]))
    assert again.commit.last_word([A]) is None


@pytest.mark.parametrize("known", [False, True])
def test_it_is_not_told_before_it_is_known_where_the_group_stands(known: bool) -> None:
    """A connection broke, and bytes that were on their way may have arrived."""
    again = ComesBack(UnfinishedGap(2, 3, 0, "1;me-9;", 2))
    again.commit.polled(again.assignment.take(records(A, [2, 3])).runs)
    [sent] = again.commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    again.commit.connection_lost()
    again.commit.answered(Answered(sent.metadata, None, {A: None}))
    assert again.commit.rejoining
    again.commit.revoked([A])
    again.commit.rejoined()
    again.commit.assigned([A], {A: UnfinishedGap(2, 4, 0, sent.metadata, 2)})
    again.commit.polled(again.assignment.take(records(A, [2, 3])).runs)
    again.commit.marks.finished(records(A, [2]))
    if known:
        assert again.commit.next(0.0, PLENTY)
        again.commit.read_back({A: (4, sent.metadata)}, 0.0)
    word = again.commit.last_word([A])
    told = word and (word.offsets, word.marks)
    assert told == (({A: 4}, {A: LowMark(3, 0, 3)}) if known else None)


def test_what_waits_for_its_commit_is_not_told_to_be_done() -> None:
    again = ComesBack(UnfinishedGap(1, 3, 0, "1;me-9;", 2))
    again.commit.polled(again.assignment.take(records(A, [1, 2])).runs)
    again.commit.marks.finished(records(A, [2]))
    assert again.commit.next(TELL_PAUSE, NO_ROOM) == []
    [told] = again.commit.tell_marks(TELL_PAUSE)
    assert isinstance(told, SendCommit)
    assert told.marks == {A: LowMark(1, 0, 2)}


@pytest.mark.parametrize("landed", [False, True])
def test_no_commit_goes_back_behind_one_of_an_earlier_assignment(landed: bool) -> None:
    """It may land after the group was asked where to begin."""
    worn = Worn()
    worn.commit.revoked([A])
    worn.commit.assigned([A], {A: UnfinishedGap(4, 6, MOST_TIMES + 1, "1;other-1;")})
    if landed:
        assert worn.lands() == [3]
        worn.commit.marks.finished(records(A, [3]))
    assert worn.commit.tell_marks(TELL_PAUSE) == []
    assert worn.commit.last_word([A]) is None


def test_a_mark_is_worn_no_further_by_a_partition_that_comes_back() -> None:
    """Its records still run: nothing of it is handed out, and no owner has died."""
    assignment = Assignment()
    commit = Commit(assignment, "me", Unfinished())
    gap = UnfinishedGap(0, 10, MOST_TIMES, "1;other-1;")
    told: list[LowMark] = []
    for turn in range(6):
        commit.assigned([A], {A: gap})
        commit.polled(assignment.take(records(A, range(10))).runs)
        for now in (2 * turn * TELL_PAUSE, (2 * turn + 1) * TELL_PAUSE):
            for action in commit.next(now, PLENTY):
                assert isinstance(action, SendCommit)
                told.append(action.marks[A])
                commit.answered(Answered(action.metadata, None, {A: None}))
                gap = UnfinishedGap(told[-1].offset, 10, told[-1].times, action.metadata)
        commit.revoked([A])
    assert told == [LowMark(1, MOST_TIMES + 1)]


def test_what_nobody_has_begun_is_told_at_the_end_also_of_a_gap_of_one_s_own() -> None:
    """The connection was lost, and with it the last word; nothing was handed out since."""
    assignment = Assignment()
    commit = Commit(assignment, "me", Unfinished())
    commit.assigned([A])
    commit.polled(assignment.take(records(A, range(3))).runs)
    [sent] = commit.next(0.0, PLENTY)
    assert isinstance(sent, SendCommit)
    commit.answered(Answered(sent.metadata, None, {A: None}))
    commit.marks.departed([], records(A, [0, 2]))  # 1 still runs
    commit.revoked([A])
    commit.assigned([A], {A: UnfinishedGap(0, 3, 0, sent.metadata)})
    [told] = commit.tell_marks(TELL_PAUSE)
    assert isinstance(told, SendCommit)
    assert told.marks == {A: LowMark(0, 0, 1)}
