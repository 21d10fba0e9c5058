"""A log that is gone while a commit of its records is open: nobody else can read them any more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import Action, Answered, Deliver, Drop, Place, SendCommit
from consumer.intake.flow_control import Room
from consumer.intake.letting_go import LettingGo
from consumer.intake.offset_metadata import UnfinishedGap
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import OFFSET, TIMESTAMP, Record, is_read_again, may_have_begun
from tests.support.consumer_records import records
from tests.support.fake_pool import FakePool

A: Place = ("t", 0)
PLENTY = Room(1000, 1 << 20)
NOBODYS: Mapping[Place, UnfinishedGap] = {}
OLD, NEW = 1, 2
"""Timestamps of records of the two logs."""


class Bench:
    """A machine with partition A and a commit of some of its records open."""

    def __init__(
        self, *offsets: int, gaps: Mapping[Place, UnfinishedGap] = NOBODYS, again: bool = True
    ) -> None:
        self.assignment = Assignment()
        self.commit = Commit(self.assignment, "me", Unfinished() if again else None)
        self.commit.assigned([A], gaps)
        self.poll(records(A, offsets, timestamp=OLD))
        [sent] = self.next()
        assert isinstance(sent, SendCommit)

    def poll(self, polled: list[Record]) -> None:
        taken = self.assignment.take(polled)
        if taken.restarted:
            self.commit.restarted(taken.restarted)
        self.commit.polled(taken.runs)

    def made_anew(self, *polled: Record) -> None:
        """The client starts anew, and these are the first records."""
        self.assignment.offset_reset(A)
        self.poll(list(polled))

    def next(self) -> list[Action]:
        return self.commit.next(100.0, PLENTY)

    def landed(self, number: int = 1) -> list[Action]:
        return self.commit.answered(Answered(f"1;me-{number};", None, {A: None}))


def delivered(actions: list[Action]) -> list[Record]:
    assert [action for action in actions if isinstance(action, Drop)] == []
    return [r for action in actions if isinstance(action, Deliver) for r in action.records]


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_what_was_committed_of_a_log_that_is_gone_runs_here(*, revoked: bool, again: bool) -> None:
    bench = Bench(0, 1, 2, again=again)
    bench.made_anew(*records(A, [0], timestamp=NEW))
    if revoked:
        bench.commit.revoked([A])
        bench.commit.assigned([A])
        bench.poll(records(A, [0], timestamp=NEW))
    ran = delivered(bench.landed())
    assert [(r[OFFSET], r[TIMESTAMP]) for r in ran] == [(0, OLD), (1, OLD), (2, OLD)]
    assert [r for r in ran if is_read_again(r)] == [], "nobody can have had them"
    # Of the new log nothing is taken for known.
    [sent] = bench.next()
    assert isinstance(sent, SendCommit)
    assert sent.offsets == {A: 1}


def test_what_others_may_have_begun_of_a_log_that_is_gone_is_known_as_such() -> None:
    bench = Bench(1, 2, 3, gaps={A: UnfinishedGap(1, 3, begun=2)})
    bench.made_anew(*records(A, [0], timestamp=NEW))
    ran = delivered(bench.landed())
    assert [(r[OFFSET], is_read_again(r), may_have_begun(r)) for r in ran] == [
        (1, True, False), (2, True, True), (3, False, False),
    ]  # fmt: skip


def test_what_others_had_between_may_have_been_begun_by_them() -> None:
    bench = Bench(0, 1)
    bench.commit.revoked([A])
    bench.commit.assigned([A], {A: UnfinishedGap(1, 5)})
    bench.poll(records(A, [1, 2, 3], timestamp=OLD))
    bench.made_anew(*records(A, [0], timestamp=NEW))
    ran = delivered(bench.landed())
    assert [(r[OFFSET], may_have_begun(r)) for r in ran] == [(0, True), (1, True)]


@pytest.mark.parametrize("again", [False, True])
def test_what_is_left_of_a_log_that_was_cut_off_is_not_taken_twice(*, again: bool) -> None:
    bench = Bench(0, 1, 2, 3, again=again)
    bench.made_anew(*records(A, [0, 1], timestamp=OLD), *records(A, [2], timestamp=NEW))
    assert [r[OFFSET] for r in delivered(bench.landed())] == [0, 1, 2, 3]
    assert bench.commit.held == 1
    bench.next()
    assert [(r[OFFSET], r[TIMESTAMP]) for r in delivered(bench.landed(2))] == [(2, NEW)]


def test_what_did_not_land_in_time_is_lost_as_nobody_else_has_it() -> None:
    bench = Bench(0, 1)
    bench.made_anew(*records(A, [0], timestamp=NEW))
    bench.commit.abandon()
    assert bench.commit.lost == {"a.b": 2}


@pytest.mark.parametrize("delivered_first", [True, False])
@pytest.mark.parametrize("stopping", [True, False])
def test_what_is_in_hand_of_a_log_that_is_gone_is_given_up_to_nobody(
    *, delivered_first: bool, stopping: bool
) -> None:
    pool, bench = FakePool(), Bench(0, 1, 2)
    pool.per_step = 0
    letting_go = LettingGo(pool, bench.commit, lambda: 0.0, read_again=True)
    if delivered_first:
        pool.submit(delivered(bench.landed()), 0)
    bench.made_anew(*records(A, [0, 1], timestamp=NEW))
    if not delivered_first:
        pool.submit(delivered(bench.landed()), 0)
    bench.next()
    pool.submit(delivered(bench.landed(2)), 0)
    if stopping:
        letting_go.begin_all([A])
        letting_go.tend(0.0)
    else:
        letting_go.now([A])
    assert [(r[OFFSET], r[TIMESTAMP]) for r in pool.queue if r[TIMESTAMP] == OLD] == [
        (0, OLD), (1, OLD), (2, OLD),
    ]  # fmt: skip


def test_once_the_log_that_is_gone_is_worked_off_its_partition_goes_as_any_other() -> None:
    pool, bench = FakePool(), Bench(0, 1, 2)
    letting_go = LettingGo(pool, bench.commit, lambda: 0.0, read_again=True)
    old = delivered(bench.landed())
    bench.made_anew(*records(A, [0, 1], timestamp=NEW))
    bench.next()
    pool.submit(delivered(bench.landed(2)), 0)
    bench.commit.marks.departed(old, [])
    letting_go.now([A])
    assert pool.queue == []
