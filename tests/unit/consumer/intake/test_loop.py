from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from consumer.intake import loop as loop_module
from consumer.intake.events import (
    Answered,
    Assigned,
    ConnectionLost,
    Event,
    Found,
    OffsetReset,
    Place,
    Polled,
    Revoked,
    Trouble,
)
from consumer.intake.flow_control import HOLD, SPARE
from consumer.intake.offset_metadata import MOST_TIMES, LowMark, UnfinishedGap
from consumer.intake.waits import (
    BUSY_WAIT,
    COMMIT_WAIT,
    FIRST_PAUSE,
    IDLE_WAIT,
    PENDING_WAIT,
)
from feedback.contract.record import OFFSET, is_read_again
from processing.pool.backlog import Backlog as Held
from tests.support.consumer_records import records
from tests.support.fake_kafka import FakeKafka
from tests.support.fake_pool import FakePool
from tests.support.loop_bench import A, Bench
from tests.support.waiting import eventually


@pytest.fixture
def bench() -> Bench:
    return Bench()


def offsets(pool: FakePool) -> list[int]:
    return [record[2] for record in pool.submitted]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(bench: Bench) -> None:
    bench.arrive(0, 1, 2)
    bench.turns()
    bench.kafka.events.append(OffsetReset(A))
    bench.arrive(0, 1)
    bench.turns()
    assert offsets(bench.pool) == [0, 1, 2, 0, 1]
    assert bench.loop.stats().counts["restarted"] == 1


def test_a_log_that_ends_before_the_mark_is_another_one_and_nothing_of_it_is_read_again(
    bench: Bench,
) -> None:
    gap = {A: UnfinishedGap(50, 100, token="1;dead-7;")}
    bench.kafka.events += [Revoked((A,), lost=False), Assigned((A,), gap), OffsetReset(A)]
    bench.arrive(0, 1)
    bench.turns()
    assert offsets(bench.pool) == [0, 1]
    assert [r for r in bench.pool.submitted if is_read_again(r)] == []
    assert bench.kafka.commits[-1][0] == {A: 2}
    assert bench.loop.stats().counts["restarted"] == 1


def test_a_log_that_begins_behind_the_mark_is_the_same(bench: Bench) -> None:
    gap = {A: UnfinishedGap(50, 100, token="1;dead-7;")}
    bench.kafka.events += [Revoked((A,), lost=False), Assigned((A,), gap), OffsetReset(A)]
    bench.arrive(98, 100)
    bench.turns()
    assert [is_read_again(r) for r in bench.pool.submitted] == [True, False]
    assert "restarted" not in bench.loop.stats().counts


def test_a_single_request_is_committed_in_the_turn_it_comes_and_goes_on_confirmation(
    bench: Bench,
) -> None:
    bench.arrive(7)
    bench.loop.turn()
    assert bench.kafka.commits == [({A: 8}, "1;me-1;")]
    assert offsets(bench.pool) == []
    bench.loop.turn()
    assert offsets(bench.pool) == [7]


def test_it_waits_where_there_is_most_to_wait_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    bench.loop.turn()
    assert bench.kafka.waits[-1] == (100, IDLE_WAIT)
    bench.kafka.silent = True
    bench.arrive(1)
    bench.turns(2)
    assert (bench.kafka.waits[-1][1], pauses) == (0.0, [FIRST_PAUSE])
    begun = bench.now
    for age, pause in ((0.01, 0.001), (0.1, COMMIT_WAIT)):
        bench.now = begun + age
        bench.loop.turn()
        assert (bench.kafka.waits[-1][1], pauses[-1]) == (0.0, pytest.approx(pause))
    bench.now += 5
    bench.loop.turn()
    assert (bench.kafka.waits[-1][1], pauses[-1]) == (BUSY_WAIT, 0.0)


def test_while_records_wait_for_workers_it_waits_for_those(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(bench.pool, "step", waited.append)
    bench.arrive(1)
    bench.turns(2)
    bench.loop.turn()
    assert waited[-1] == PENDING_WAIT
    assert bench.kafka.waits[-1][1] == 0.0
    bench.pool.saturated = True
    bench.loop.turn()
    assert (waited[-1], bench.kafka.waits[-1][1]) == (BUSY_WAIT, 0.0)
    bench.kafka.silent = True
    bench.arrive(2)
    bench.turns(2)
    assert waited[-1] == COMMIT_WAIT


def test_where_each_worker_has_its_next_chunk_it_waits_for_those_with_a_commit_open_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next commit takes along what comes meanwhile."""
    waited: list[float] = []
    bench.pool.supplied = True
    monkeypatch.setattr(bench.pool, "step", waited.append)
    for n in range(4):
        bench.arrive(n)
        bench.loop.turn()
    assert waited == [BUSY_WAIT] * 4
    assert {wait for _, wait in bench.kafka.waits[1:]} == {0.0}
    assert [offsets for offsets, _ in bench.kafka.commits] == [{A: 1}, {A: 2}, {A: 3}, {A: 4}]


def test_only_what_fits_is_polled_and_partitions_are_paused_in_between(bench: Bench) -> None:
    bench.pool.per_step = 0
    bench.arrive(*range(60))
    bench.turns()
    assert bench.kafka.waits[-1][0] == 40
    bench.arrive(*range(60, 100))
    bench.turns()
    polls = len(bench.kafka.waits)
    bench.turns()
    assert len(bench.kafka.waits) == polls, "full for a moment: nothing is polled"
    assert bench.kafka.paused == {A: False}
    bench.now += HOLD
    bench.turns()
    assert bench.kafka.paused == {A: True}
    assert len(bench.kafka.waits) > polls, "polling goes on while paused"
    assert bench.loop.stats().paused == ("full",)
    polls = len(bench.kafka.waits)
    bench.turns()
    assert len(bench.kafka.waits) > polls, "polling goes on"
    bench.pool.per_step = 25
    bench.loop.turn()
    bench.loop.turn()
    assert bench.kafka.paused == {A: False}
    assert bench.pool.most_in_hand <= 100


def filled(bench: Bench) -> Place:
    """Fills the bound of 100 from A; another partition of ours, paused with it."""
    other = ("t", 1)
    bench.kafka.events.append(Assigned((other,)))
    bench.pool.per_step = 0
    bench.arrive(*range(100))
    bench.turns()
    bench.now += HOLD
    bench.turns()
    assert bench.kafka.paused == {A: True, other: True}, "the bound is full, nobody knows of what"
    return other


def test_who_was_heard_least_lately_is_resumed_ahead_of_the_others(bench: Bench) -> None:
    """What is fetched of one partition may be more than the bound, each time."""
    other = filled(bench)
    bench.pool.per_step = 60
    bench.loop.turn()
    bench.pool.per_step = 0
    bench.loop.turn()
    assert bench.kafka.paused == {A: True, other: False}
    bench.kafka.events.append(Polled(records(other, [0])))
    bench.turns(2)
    assert bench.kafka.paused == {A: False, other: False}


def test_a_partition_that_is_assigned_while_paused_is_paused(bench: Bench) -> None:
    bench.pool.database_up = False
    bench.loop.turn()
    assert bench.kafka.paused == {A: True}
    bench.kafka.paused.clear()
    bench.kafka.events += [Revoked((A,), lost=False)]
    bench.loop.turn()
    bench.kafka.subscribe()
    bench.loop.turn()
    assert bench.kafka.paused == {A: True}
    bench.pool.database_up = True
    bench.turns(2)
    assert bench.kafka.paused == {A: False}


def test_nothing_is_committed_while_the_database_is_away(bench: Bench) -> None:
    bench.pool.database_up = False
    bench.arrive(1)
    bench.turns()
    assert bench.kafka.commits == []
    bench.pool.database_up = True
    bench.turns()
    assert offsets(bench.pool) == [1]


def test_messages_that_are_not_ours_or_not_new_are_counted_and_left(bench: Bench) -> None:
    bench.arrive(3)
    bench.arrive(3, 4)
    bench.kafka.events.append(Polled(records(("t", 9), [1, 2])))
    bench.turns()
    assert offsets(bench.pool) == [3, 4]
    counts = bench.loop.stats().counts
    assert (counts["drop:stale"], counts["drop:unowned"]) == (1, 2)


def test_an_unclear_commit_is_read_back(bench: Bench) -> None:
    bench.kafka.error = "REQUEST_TIMED_OUT"
    bench.kafka.found = {A: (3, "1;me-1;")}
    bench.arrive(1, 2)
    bench.turns()
    assert offsets(bench.pool) == [1, 2]
    assert bench.kafka.calls == ["subscribe", "committed"]


def test_a_commit_that_is_refused_at_once_is_an_answer_too(bench: Bench) -> None:
    bench.kafka.refuse = "_WAIT_COORD"
    bench.kafka.found = {A: (-1001, "")}
    bench.arrive(1)
    bench.turns()
    bench.kafka.refuse = None
    bench.now += 1
    bench.turns()
    assert offsets(bench.pool) == [1]


def test_a_lost_connection_leaves_and_joins_the_group(bench: Bench) -> None:
    bench.kafka.silent = True
    bench.arrive(1)
    bench.turns()
    bench.kafka.events += [ConnectionLost("x"), Answered("1;me-1;", None, {})]
    bench.kafka.silent = False
    bench.turns(1)
    assert offsets(bench.pool) == [1]
    assert bench.kafka.calls == ["subscribe", "unsubscribe"]
    bench.turns()
    assert bench.kafka.calls == ["subscribe", "unsubscribe", "subscribe", "committed"]
    bench.kafka.found = {A: (2, "1;me-1;")}
    bench.arrive(2)
    bench.now += 1
    bench.turns()
    assert offsets(bench.pool) == [1, 2]


def test_a_group_that_cannot_be_left_is_fatal(bench: Bench) -> None:
    bench.kafka.stays_assigned = True
    bench.kafka.events.append(ConnectionLost("x"))
    bench.arrive(1)
    bench.loop.turn()
    bench.kafka.events.insert(0, ConnectionLost("x"))
    bench.turns()
    assert bench.loop.fatal is None
    bench.now += loop_module.REJOIN_LIMIT + 1
    bench.loop.turn()
    assert "not left" in (bench.loop.fatal or "")


@pytest.mark.parametrize(
    "trouble, fatal",
    [
        (Trouble("_ALL_BROKERS_DOWN", "1/1", fatal=False), False),
        (Trouble("UNKNOWN_TOPIC_OR_PART", "t", fatal=False), False),
        (Trouble("_FATAL", "the end", fatal=True), True),
        (Trouble("_AUTO_OFFSET_RESET", "no offset", fatal=False), True),
        (Trouble("TOPIC_AUTHORIZATION_FAILED", "t", fatal=False), True),
    ],
)
def test_what_no_waiting_heals_is_fatal(bench: Bench, trouble: Trouble, fatal: bool) -> None:
    bench.kafka.events.append(trouble)
    bench.loop.turn()
    assert (bench.loop.fatal is not None) == fatal


def test_what_somebody_has_to_mend_says_how() -> None:
    assert "kafka_assignor" in Trouble("INCONSISTENT_GROUP_PROTOCOL", "no", fatal=False).explained
    assert Trouble("_TRANSPORT", "broken pipe", fatal=False).explained == "broken pipe"


def test_a_fatal_answer_is_fatal(bench: Bench) -> None:
    bench.kafka.error = "FENCED_INSTANCE_ID"
    bench.arrive(1)
    bench.turns()
    assert "FENCED_INSTANCE_ID" in (bench.loop.fatal or "")


def test_stopping_settles_the_open_commit_and_leaves_the_rest_to_others(bench: Bench) -> None:
    bench.kafka.silent = True
    bench.arrive(1)
    bench.turns()
    bench.arrive(2)
    bench.turns()
    assert bench.loop.stats().held == 2
    bench.loop.stop_intake()
    assert not bench.loop.settled
    bench.kafka.events.append(Answered("1;me-1;", None, {}))
    bench.kafka.silent = False
    bench.turns()
    assert bench.loop.settled
    assert offsets(bench.pool) == [1]
    assert [c[0] for c in bench.kafka.commits] == [{A: 2}, {A: 2}]  # the last one tells the mark
    assert [marks[A] for marks in bench.kafka.marks] == [LowMark(1), LowMark(2)]
    bench.loop.leave()
    eventually(lambda: bench.loop.left)


def test_leaving_may_hang_while_the_pool_goes_on(bench: Bench) -> None:
    bench.kafka.close_hangs.clear()
    bench.loop.leave()
    assert bench.loop.leaving
    assert not bench.loop.left
    steps, polls = bench.pool.steps, len(bench.kafka.waits)
    bench.turns()
    assert (bench.pool.steps, len(bench.kafka.waits)) == (steps + 3, polls)
    bench.kafka.close_hangs.set()
    eventually(lambda: bench.loop.left)


def test_a_commit_without_an_answer_is_given_up_and_complained_about(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def warning(event: str, **_: Any) -> None:
        said.append(event)

    monkeypatch.setattr(bench.loop, "_log", type("Log", (), {"warning": staticmethod(warning)}))
    bench.kafka.silent = True
    bench.arrive(1)
    bench.turns()
    bench.now += loop_module.SLOW_COMMIT + 1
    bench.turns()
    assert said == ["a commit waits for its answer"]
    bench.loop.abandon()
    assert bench.loop.settled
    assert bench.loop.stats().counts["drop:undecided"] == 1


class Backlog(FakeKafka):
    """Hands out as many records as it is polled for, unless the partition is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self.blocked: list[float] = []

    def poll(self, most: int, timeout: float) -> list[Event]:
        events = super().poll(most, timeout)
        if not self.paused.get(A, True):
            events.append(Polled(records(A, range(self.given, self.given + most))))
            self.given += most
        return events

    def committed(self, places: Sequence[Place], timeout: float) -> Found:
        self.blocked.append(timeout)
        return super().committed(places, timeout)


def test_the_bound_holds_while_a_commit_waits_for_its_answer() -> None:
    bench = Bench(1000)
    kafka = bench.loop._kafka = Backlog()
    kafka.silent = True
    kafka.events.append(Assigned((A,)))
    for _ in range(500):
        bench.loop.turn()
        bench.now += 0.0004
    assert kafka.commits, "a commit is open"
    assert 1000 <= bench.loop.stats().held <= 1000 + SPARE
    assert kafka.paused[A]


def test_a_partition_whose_requests_fill_the_bound_is_paused_and_the_others_go_on() -> None:
    bench = Bench(100)
    other = filled(bench)
    bench.pool.waits = {A: Held(100, 1000.0, "slow"), ("t", 7): Held(90, 1000.0, "not ours")}
    bench.pool.per_step = 1
    bench.now += HOLD
    bench.turns(1)
    bench.pool.waits[A] = Held(98, 980.0, "slow")
    bench.pool.per_step = 0
    bench.turns()
    assert bench.kafka.paused == {A: True, other: False}
    bench.pool.database_up = False
    bench.turns()
    assert bench.kafka.paused == {A: True, other: True}
    bench.pool.database_up = True
    bench.turns()
    assert bench.kafka.paused == {A: True, other: False}
    bench.pool.per_step = 60
    bench.pool.waits = {A: Held(10, 100.0, "slow")}
    bench.now += HOLD
    bench.turns()
    assert bench.kafka.paused == {A: False, other: False}


def test_while_nobody_answers_where_the_group_stands_the_loop_is_hardly_ever_blocked() -> None:
    bench = Bench()
    kafka = bench.loop._kafka = Backlog()
    kafka.error = "_TRANSPORT"
    kafka.events.append(Assigned((A,)))
    for _ in range(6000):
        bench.loop.turn()
        bench.now += 0.01
    assert len(kafka.blocked) > 10, "it is asked again and again"
    assert sum(seconds > 0.25 for seconds in kafka.blocked) <= len(kafka.blocked) / 4
    assert max(kafka.blocked) == 2.0, "a coordinator that is far away can answer"
    assert sum(kafka.blocked) <= 0.22 * (60 + sum(kafka.blocked))


def test_what_is_let_go_is_given_up_and_the_last_commit_says_from_where_to_read(
    bench: Bench,
) -> None:
    bench.pool.per_step = 0
    bench.arrive(5, 6, 7)
    bench.turns(4)
    bench.pool.per_step = 2
    bench.turns(1)
    last = bench.kafka.before_revoke([A])
    assert last is not None
    assert last.offsets == {A: 8}
    assert last.marks[A] == LowMark(7, 0, begun=8)
    assert bench.pool.let_go_of == [(A,), ()]
    assert bench.pool.in_hand == 0
    # It was let go before the event of its revocation is seen: nothing more of it is taken.
    bench.arrive(8)
    bench.turns()
    assert len(bench.pool.submitted) == 3


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "in peace"])
def test_of_a_partition_that_goes_what_nobody_may_read_is_run_here(
    bench: Bench, *, lost: bool
) -> None:
    """Six owners may have died over it, but this one lives. A last commit may not arrive."""
    gap = {A: UnfinishedGap(5, 9, MOST_TIMES + 1, "1;dead-7;")}
    bench.pool.per_step = 0
    bench.kafka.events += [Revoked((A,), lost=True), Assigned((A,), gap)]
    bench.arrive(5, 6, 7, 8, 9)
    bench.turns(4)
    assert bench.kafka.marks[-1] == {A: LowMark(7, MOST_TIMES + 2)}
    if not lost:
        last = bench.kafka.before_revoke([A])
        assert last is not None
        assert last.marks == {A: LowMark(5, MOST_TIMES + 1, 5)}
    bench.kafka.events += [Revoked((A,), lost=lost)]
    bench.turns(1)
    assert [r[OFFSET] for r in bench.pool.queue] == [5, 6]
    assert len(bench.kafka.commits) == 1, "nothing more can be said of it"


def test_while_no_worker_can_start_nothing_is_taken(bench: Bench) -> None:
    bench.pool.workers_start = False
    bench.turns()
    assert bench.loop.stats().paused == ("workers",)
    bench.arrive(0)
    bench.turns()
    assert bench.kafka.commits == []
    bench.pool.workers_start = True
    bench.turns()
    assert offsets(bench.pool) == [0]
