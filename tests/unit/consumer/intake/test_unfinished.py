"""Low marks: what is told of what is not finished, and what is read again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.intake.assignment import Run
from consumer.intake.offset_metadata import (
    MOST_TIMES,
    LowMark,
    UnfinishedGap,
    gap_of,
    metadata_of,
    token_of,
)
from consumer.intake.unfinished import NEVER, Unfinished
from feedback.contract.record import OFFSET, Record, is_read_again, may_be_under_way, may_have_begun
from tests.support.consumer_records import records

A = ("t", 0)
TOKEN = "1;me-1;"


@pytest.mark.parametrize(
    "mark, gap",
    [
        (LowMark(7, 0), UnfinishedGap(7, 10, 0, TOKEN)),
        (LowMark(7, 2), UnfinishedGap(7, 10, 2, TOKEN)),
        (LowMark(7, 0, 9), UnfinishedGap(7, 10, 0, TOKEN, 9)),
        (LowMark(10, 0), None),  # all is finished
        (None, None),  # nothing is read again
    ],
)
def test_what_is_told_is_read(mark: LowMark | None, gap: UnfinishedGap | None) -> None:
    assert gap_of(10, metadata_of(TOKEN, mark)) == gap


@pytest.mark.parametrize(
    "metadata, gap",
    [
        ("1;me-1;7;2;of later versions", UnfinishedGap(7, 10, 2, TOKEN)),
        ("1;me-1;7;2;8;of later versions", UnfinishedGap(7, 10, 2, TOKEN, 8)),
        (TOKEN, None),  # written by an older version
        ("", None),  # an operator has set the offset
        (None, None),
        ("another program", None),
        ("2;me-1;7", None),
    ],
)
def test_what_metadata_says(metadata: str | None, gap: UnfinishedGap | None) -> None:
    assert gap_of(10, metadata) == gap


@pytest.mark.parametrize("mark", ["11", "-1", "x", "7 ", "\u0667", "9" * 30, "7;x"])
def test_what_cannot_be_is_refused(mark: str) -> None:
    with pytest.raises(ValueError, match=r"mark|number"):
        gap_of(10, f"{TOKEN}{mark}")


def test_without_a_committed_offset_nothing_is_read_again() -> None:
    assert gap_of(-1001, metadata_of(TOKEN, LowMark(7, 0))) is None


def test_tokens_are_told_apart_whatever_the_mark() -> None:
    assert token_of(metadata_of(TOKEN, LowMark(7, 3))) == TOKEN
    assert token_of("1;me-11;7") != TOKEN
    assert token_of("x") is token_of(None) is None


class Reader:
    """One partition as the commits see it."""

    def __init__(self, gap: UnfinishedGap | None = None) -> None:
        self.unfinished = Unfinished()
        self.assign(gap)

    def assign(self, gap: UnfinishedGap | None = None) -> None:
        self.unfinished.assigned([A], {} if gap is None else {A: gap})

    def read(self, *offsets: int, timestamp: int = 0) -> list[Record]:
        """Polled, committed, confirmed; returns what is delivered."""
        found = self.unfinished.polled([Run(A, records(A, offsets, timestamp=timestamp))])
        if not found:
            return []
        delivered = self.unfinished.marked(A, found[0].records)
        self.unfinished.delivered(A, delivered)
        return delivered

    def mark(self, committed: int, *, going: bool = False) -> tuple[int, int]:
        """The mark, and how often its gap was read."""
        told = self.unfinished.mark(A, committed, read_to=committed, going=going)
        return told.offset, told.times

    def begun(self, committed: int) -> int | None:
        """What it says in the end of what may have been begun."""
        return self.unfinished.mark(A, committed, going=True).begun


def test_the_mark_is_the_lowest_that_is_not_finished() -> None:
    reader = Reader()
    reader.read(3, 4, 6)
    assert reader.mark(7) == (3, 0)
    reader.unfinished.finished(records(A, [4]))
    assert reader.mark(7) == (3, 0)
    reader.unfinished.finished(records(A, [3]))
    assert reader.mark(7) == (6, 0)
    reader.unfinished.finished(records(A, [6]))
    assert reader.mark(7) == (7, 0)


def test_a_commit_counts_its_own_records_as_not_finished() -> None:
    reader = Reader()
    reader.unfinished.polled([Run(A, records(A, [3, 4]))])
    assert reader.mark(5) == (3, 0)


def test_what_is_read_again_is_marked_and_no_commit_lies_below_its_end() -> None:
    reader = Reader(UnfinishedGap(5, 8))
    assert reader.unfinished.floor(A) == 8
    assert [is_read_again(r) for r in reader.read(5, 7, 8, 9)] == [True, True, False, False]


def test_a_gap_counts_how_often_it_is_read_as_long_as_its_mark_stands() -> None:
    reader = Reader(UnfinishedGap(5, 8, 2))
    reader.read(5, 6)
    assert reader.mark(8) == (5, 3)
    assert reader.mark(8, going=True) == (5, 2)
    reader.unfinished.finished(records(A, [5]))
    assert reader.mark(8) == (6, 0)


def test_what_ends_its_readers_again_and_again_is_told_no_more() -> None:
    reader = Reader(UnfinishedGap(5, 80, MOST_TIMES + 2))
    assert reader.mark(80) == (9, MOST_TIMES + 3)
    reader.read(*range(5, 80))
    assert reader.mark(80) == (9, MOST_TIMES + 3)
    # But for a reader that lets it go in peace.
    assert reader.mark(80, going=True) == (5, MOST_TIMES + 2)


def test_once_the_first_of_a_gap_has_ended_all_that_is_left_of_it_is_told_again() -> None:
    reader = Reader(UnfinishedGap(5, 80, MOST_TIMES + 2))
    reader.unfinished.told(A, 80, reader.unfinished.mark(A, 80, read_to=80))
    reader.read(*range(5, 80))
    assert reader.unfinished.risen() == {}
    reader.unfinished.finished(records(A, [5]))
    assert reader.unfinished.risen() == {A: 80}, "although it is lower than what was told"
    assert reader.mark(80) == (6, 0)
    reader.unfinished.told(A, 80, reader.unfinished.mark(A, 80))
    assert reader.unfinished.risen() == {}


def test_what_was_not_read_is_told_however_often_its_gap_was() -> None:
    """A process that loses its session there lives, and nobody else would read it."""
    reader = Reader(UnfinishedGap(5, 80, MOST_TIMES + 2))
    told = [reader.unfinished.mark(A, 80, read_to=7)]
    reader.read(5, 6)
    told.append(reader.unfinished.mark(A, 80))
    reader.read(*range(7, 80))
    told.append(reader.unfinished.mark(A, 80))
    assert [mark.offset for mark in told] == [7, 7, 9]
    assert {mark.times for mark in told} == {MOST_TIMES + 3}


@pytest.mark.parametrize("times", [MOST_TIMES + 3, 10**18])
def test_no_more_than_the_gap_is_given_up(times: int) -> None:
    reader = Reader(UnfinishedGap(5, 8, times))
    assert reader.mark(8) == (8, times + 1)
    reader.read(5, 6, 9)
    assert reader.mark(10) == (8, times + 1)


@pytest.mark.parametrize("killer", [0, 1, 40, 99])
def test_what_ends_every_reader_takes_little_with_it(killer: int) -> None:
    """Each owner reads, commits new records besides, and dies before anything has an end."""
    mark, times, committed, owners = 0, 0, 100, 0
    while mark <= killer:
        owners += 1
        assert owners < 20, "it goes on for ever"
        reader = Reader(UnfinishedGap(mark, committed, times))
        committed += 10
        mark, times = reader.mark(committed)
    assert owners > MOST_TIMES
    assert mark <= 2 * killer + 1
    # Whoever comes next lives.
    reader = Reader(UnfinishedGap(mark, committed, times))
    reader.unfinished.finished(reader.read(*range(mark, committed)))
    assert reader.mark(committed) == (committed, 0)


def test_what_no_mark_tells_is_known() -> None:
    reader = Reader(UnfinishedGap(5, 80, MOST_TIMES + 2))
    assert reader.unfinished.worn_to(A) == 9
    assert reader.unfinished.worn_to(("t", 1)) == NEVER, "nothing of it is told anew"
    reader.read(5, 6)
    # It told a mark above these, and comes back: who is assigned it next does not read them.
    reader.assign()
    assert reader.unfinished.worn_to(A) > 6
    reader.read(80, 81)
    assert reader.unfinished.worn_to(A) == 80


def test_who_reads_a_gap_once_too_often_hands_over_in_peace_what_he_has_not_read() -> None:
    reader = Reader(UnfinishedGap(5, 8, MOST_TIMES))
    assert reader.mark(8, going=True) == (5, MOST_TIMES), "the first of it is being committed"
    reader.read(5)
    assert reader.mark(8) == (6, MOST_TIMES + 1)
    reader.unfinished.finished(records(A, [5]))
    assert reader.mark(8, going=True) == (6, 0)


def test_what_is_still_in_hand_from_before_is_not_taken_again_and_holds_the_mark() -> None:
    reader = Reader()
    reader.read(3, 4, 5)
    reader.unfinished.revoked([A])
    reader.assign(UnfinishedGap(3, 6))
    reader.unfinished.finished(records(A, [4]))
    assert [r[OFFSET] for r in reader.read(3, 4, 5, 6)] == [4, 6]
    reader.unfinished.finished(records(A, [4, 6]))
    assert reader.mark(7) == (3, 1)
    reader.unfinished.finished(records(A, [3, 5]))
    assert reader.mark(7) == (7, 0)


def test_what_was_given_up_is_told_to_the_next_owner_and_taken_again_by_this_one() -> None:
    reader = Reader()
    reader.read(3, 4, 5)
    reader.unfinished.finished(records(A, [3]))
    reader.unfinished.given_up(records(A, [4, 5]))
    assert reader.mark(6, going=True) == (4, 0)
    reader.unfinished.revoked([A])
    reader.assign(UnfinishedGap(4, 6))
    assert [r[OFFSET] for r in reader.read(4, 5)] == [4, 5]


def test_who_lets_go_in_peace_says_from_where_something_may_have_been_begun() -> None:
    reader = Reader()
    reader.read(3, 4, 5, 6)
    assert reader.unfinished.mark(A, 7).begun is None, "it may be killed at any moment"
    reader.unfinished.given_up(records(A, [3, 5]))
    assert reader.begun(7) == 4
    reader.unfinished.finished(records(A, [4]))
    assert reader.begun(7) == 6
    reader.unfinished.given_up(records(A, [6]))
    assert reader.begun(7) == 7
    assert (reader.mark(7), reader.begun(3)) == ((3, 0), None)


def test_what_was_not_begun_is_told_to_be_so() -> None:
    reader = Reader(UnfinishedGap(3, 7, begun=5))
    delivered = reader.read(3, 4, 5, 6, 7)
    assert [r[OFFSET] for r in delivered if is_read_again(r)] == [3, 4, 5, 6]
    assert [r[OFFSET] for r in delivered if may_have_begun(r)] == [5, 6]


def test_only_who_let_go_in_peace_may_be_at_it_yet() -> None:
    for begun, under_way in ((5, [5, 6]), (None, [])):
        reader = Reader(UnfinishedGap(3, 7, begun=begun))
        delivered = reader.read(3, 4, 5, 6, 7)
        assert [r[OFFSET] for r in delivered if may_be_under_way(r)] == under_way


def test_what_others_may_have_begun_is_not_called_otherwise_by_who_gives_it_up_unstarted() -> None:
    reader = Reader(UnfinishedGap(3, 7, begun=5))
    delivered = reader.read(3, 4, 5, 6, 7)
    reader.unfinished.given_up(delivered)
    assert reader.begun(8) == 5
    reader = Reader(UnfinishedGap(3, 7, begun=5))
    delivered = reader.read(3, 4, 5, 6, 7)
    reader.unfinished.finished(delivered[:3])
    reader.unfinished.given_up(delivered[3:])
    assert reader.begun(8) == 6
    # Where an offset was put back nobody knows.
    reader = Reader(UnfinishedGap(3, 7, begun=7))
    reader.unfinished.raise_floor(A, 9, 3)
    delivered = reader.read(3, 4)
    assert [r[OFFSET] for r in delivered if may_have_begun(r)] == [3, 4]


def test_another_log_has_offsets_of_its_own() -> None:
    reader = Reader(UnfinishedGap(5, 8))
    reader.read(5, 6)
    reader.unfinished.restarted([A])
    assert [is_read_again(r) for r in reader.read(0, 1)] == [False, False]
    assert (reader.unfinished.floor(A), reader.mark(2)) == (0, (0, 0))


def test_a_topic_made_anew_has_other_records_at_the_same_offsets() -> None:
    reader = Reader()
    reader.read(0, 1, 2, timestamp=1)
    reader.unfinished.revoked([A])  # the topic is deleted while they run, and made anew
    reader.assign()
    assert [r[OFFSET] for r in reader.read(0, 1, timestamp=2)] == [0, 1]
    reader.unfinished.finished(records(A, [0, 1, 2], timestamp=1))
    assert reader.mark(2) == (0, 0)
    reader.unfinished.finished(records(A, [0, 1], timestamp=2))
    assert reader.mark(2) == (2, 0)


def test_the_end_of_a_record_says_nothing_of_the_log_that_came_in_its_place() -> None:
    reader = Reader()
    reader.read(0, 1, timestamp=1)
    reader.unfinished.restarted([A])
    reader.read(0, 1, timestamp=2)
    reader.unfinished.finished(records(A, [0, 1], timestamp=1))
    assert reader.mark(2) == (0, 0)


def test_a_log_that_was_cut_off_keeps_what_is_in_hand_below_the_cut() -> None:
    reader = Reader()
    reader.read(0, 1, 2, 3, timestamp=1)
    reader.unfinished.restarted([A])
    assert [r[OFFSET] for r in reader.read(2, 3, timestamp=2)] == [2, 3]
    assert reader.mark(4) == (0, 0)
    # Nor is it taken again, where that log is read from its beginning.
    reader.unfinished.restarted([A])
    assert reader.read(0, 1, timestamp=1) == []


def test_marks_are_told_anew_once_they_have_risen() -> None:
    reader = Reader()
    reader.read(3, 4)
    assert reader.unfinished.risen() == {}
    reader.unfinished.told(A, 5, reader.unfinished.mark(A, 5))
    assert reader.unfinished.risen() == {}
    reader.unfinished.finished(records(A, [3]))
    assert reader.unfinished.risen() == {A: 5}
    reader.unfinished.told(A, 5, reader.unfinished.mark(A, 5))
    assert reader.unfinished.risen() == {}


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_whoever_reads_from_the_mark_reads_all_that_is_not_finished(data: st.DataObject) -> None:
    """Instances die, or let go, at any moment; each next one begins at the mark told last."""
    finished: set[int] = set()
    end = committed = mark = 0
    for _ in range(data.draw(st.integers(1, 6))):
        gap = UnfinishedGap(mark, committed, 0) if mark < committed else None
        reader = Reader(gap)
        position = mark if gap else committed
        hand: list[int] = []
        for _ in range(data.draw(st.integers(0, 8))):
            end += data.draw(st.integers(0, 3))
            if position < end and data.draw(st.booleans()):
                new = list(range(position, min(end, position + data.draw(st.integers(1, 4)))))
                runs = reader.unfinished.polled([Run(A, records(A, new))])
                position = new[-1] + 1
                offset = max(position, reader.unfinished.floor(A))
                told = reader.mark(offset)
                assert offset >= committed
                committed, mark = offset, told[0]
                if data.draw(st.booleans()):
                    break  # it dies with the commit that has landed
                reader.unfinished.delivered(A, runs[0].records)
                hand += new
            elif hand:
                one = hand.pop(data.draw(st.integers(0, len(hand) - 1)))
                finished.add(one)
                reader.unfinished.finished(records(A, [one]))
                if data.draw(st.booleans()):
                    mark = reader.mark(committed)[0]
        missing = {offset for offset in range(committed) if offset not in finished}
        assert all(offset >= mark for offset in missing), (missing, mark, committed)
