"""What has started may end for a moment; what has not is left to the next owner."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import Action, Answered, Deliver, SendCommit
from consumer.intake.flow_control import Room
from consumer.intake.letting_go import MOMENT, LettingGo
from consumer.intake.offset_metadata import LowMark
from consumer.intake.unfinished import Unfinished
from tests.support.consumer_records import records
from tests.support.fake_pool import FakePool

A, B = ("t", 0), ("t", 1)


class SlowPool(FakePool):
    """Has started the first of its records, which ends at a time; a waiting step takes 0.1 s."""

    def __init__(self, ends: float, *, started: int = 1) -> None:
        super().__init__()
        self.now = 0.0
        self._ends = ends
        self._started = started
        self._places: tuple[tuple[str, int], ...] = ()

    def let_go(self, places: Mapping[tuple[str, int], int]) -> None:
        self._places = tuple(places)
        self.let_go_of.append(self._places)
        self._give_up()

    def _give_up(self) -> None:
        if self._places:
            self.given_up += self.queue[self._started :]
            del self.queue[self._started :]

    @property
    def letting_go(self) -> bool:
        return bool(self._places and self.queue)

    def step(self, timeout: float) -> None:
        self._give_up()
        self.now += 0.1 if timeout else 0.0
        if self.queue and self.now >= self._ends:
            self.finished.append(self.queue.pop())


def in_hand(pool: SlowPool, *, read_again: bool = True) -> tuple[LettingGo, Commit]:
    """Offsets 0 to 3 of A are committed and in hand."""
    letting_go, commit, sent = being_committed(pool, read_again=read_again)
    confirm(commit, sent, pool)
    return letting_go, commit


def being_committed(
    pool: SlowPool, *, read_again: bool = True
) -> tuple[LettingGo, Commit, SendCommit]:
    """The commit of offsets 0 to 3 of A is open."""
    assignment = Assignment()
    commit = Commit(assignment, "me", Unfinished() if read_again else None)
    commit.assigned([A, B])
    commit.polled(assignment.take(records(A, range(4))).runs)
    (sent,) = commit.next(0.0, Room(1000, 1 << 20))
    assert isinstance(sent, SendCommit)
    return LettingGo(pool, commit, lambda: pool.now, read_again=read_again), commit, sent


def confirm(commit: Commit, sent: SendCommit, pool: SlowPool) -> None:
    (deliver,) = commit.answered(Answered(sent.metadata, None, {}))
    assert isinstance(deliver, Deliver)
    pool.submit(deliver.records, deliver.size)


@pytest.mark.parametrize("ends, mark", [(0.3, 1), (9.0, 0)], ids=["in time", "too late"])
def test_a_revocation_waits_a_moment_for_what_has_started(ends: float, mark: int) -> None:
    pool = SlowPool(ends)
    letting_go, _ = in_hand(pool)
    last = letting_go.now([A])
    assert last is not None
    assert last.marks[A][0] == mark
    assert pool.now == pytest.approx(min(ends, MOMENT), abs=0.15)
    assert pool.let_go_of == [(A,), ()]


@pytest.mark.parametrize("ends, mark", [(0.3, 1), (9.0, 0)], ids=["in time", "too late"])
def test_before_the_group_is_left_the_mark_is_told_with_what_was_begun(
    ends: float, mark: int
) -> None:
    pool = SlowPool(ends)
    letting_go, commit = in_hand(pool)
    letting_go.begin_all([A, B])
    told: list[Action] = []
    while letting_go.going:
        pool.step(0.1)
        assert pool.now < 2 * MOMENT
        commit.marks.departed(*pool.take_departed())  # as each turn of the loop does
        told += letting_go.tend(pool.now)
    assert [a.marks[A][0] for a in told if isinstance(a, SendCommit)] == [mark]
    assert pool.now == pytest.approx(min(ends, MOMENT), abs=0.15)
    assert pool.let_go_of == [(A, B), ()]


def test_what_a_late_answer_delivers_is_given_up_before_the_last_commit() -> None:
    pool = SlowPool(0.0, started=0)
    letting_go, commit, sent = being_committed(pool)
    letting_go.begin_all([A, B])
    assert letting_go.tend(pool.now) == []
    confirm(commit, sent, pool)
    (last,) = letting_go.tend(pool.now)
    assert isinstance(last, SendCommit)
    assert last.marks == {A: LowMark(0, 0, 4)}
    assert pool.queue == []


def test_while_the_group_is_left_a_revocation_does_not_give_back_what_was_let_go() -> None:
    pool = SlowPool(9.0)
    letting_go, _ = in_hand(pool)
    letting_go.begin_all([A, B])
    letting_go.now([A])
    assert pool.let_go_of == [(A, B), (A,), (A, B)]


def test_without_reading_again_nothing_is_given_up() -> None:
    pool = SlowPool(0.3)
    letting_go, _ = in_hand(pool, read_again=False)
    letting_go.begin_all([A, B])
    assert not letting_go.going
    assert letting_go.now([A]) is None
    assert (pool.let_go_of, len(pool.queue)) == ([], 4)
