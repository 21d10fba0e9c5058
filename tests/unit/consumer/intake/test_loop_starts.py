"""Partitions for which nobody could say where to begin, as the loop has them."""

from __future__ import annotations

import pytest

from consumer.intake.events import Answered, Assigned, ConnectionLost, Polled, Revoked
from consumer.intake.offset_metadata import MOST_TIMES, UnfinishedGap
from feedback.contract.record import OFFSET, is_read_again
from tests.support.consumer_records import records
from tests.support.loop_bench import A, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_of_a_partition_that_is_back_and_not_begun_nothing_is_given_up_when_it_goes(
    bench: Bench,
) -> None:
    """No mark tells what is left in hand of it, so nobody else would read that."""
    bench.pool.per_step = 0
    gap = {A: UnfinishedGap(5, 9, MOST_TIMES + 1, "1;dead-7;")}
    bench.kafka.events += [Revoked((A,), lost=True), Assigned((A,), gap)]
    bench.arrive(5, 6, 7, 8, 9)
    bench.turns(4)
    for _ in range(2):
        bench.kafka.before_revoke([A])
        bench.kafka.events.append(Revoked((A,), lost=False))
        bench.turns(1)
        assert [r[OFFSET] for r in bench.pool.queue] == [5, 6]
        bench.kafka.events.append(Assigned((A,), unknown=(A,)))
        bench.turns(1)
    # Once it is begun they hold its mark down, and are not taken a second time.
    bench.kafka.gaps = {A: UnfinishedGap(5, 10, 0, "1;other-3;")}
    bench.now += 3.0
    bench.turns(1)
    bench.arrive(5, 6, 7)
    bench.turns(3)
    assert [r[OFFSET] for r in bench.pool.queue] == [5, 6, 7]
    assert bench.kafka.marks[-1][A].offset == 5


def test_where_nobody_could_say_where_to_begin_is_asked_again_and_the_others_go_on(
    bench: Bench,
) -> None:
    kafka, other = bench.kafka, ("t", 1)
    kafka.unknown = {other}
    kafka.events += [Revoked((A,), lost=False), Assigned((A, other), unknown=(other,))]
    bench.arrive(1)
    kafka.events.append(Polled(records(other, [1])))
    bench.turns()
    assert [r[:3] for r in bench.pool.submitted] == [(*A, 1)]
    assert [list(offsets) for offsets, _ in kafka.commits] == [[A]], "nothing is told of the other"
    bench.pool.database_up = False
    bench.turns()
    bench.pool.database_up = True
    bench.turns()
    assert other not in kafka.paused, "it stays as the client has it: paused"
    times = []
    for _ in range(140):
        asked = len(kafka.asked)
        bench.now += 0.5
        bench.turns(1)
        times += [bench.now] * (len(kafka.asked) - asked)
    assert {places for places, _ in kafka.asked} == {(other,)}
    assert times == [101, 103, 107, 115, 131, 161]
    assert max(timeout for _, timeout in kafka.asked) == 2.0
    kafka.unknown.clear()
    kafka.gaps = {other: UnfinishedGap(4, 7, 0, "1;dead-7;")}
    bench.now += 30.0
    bench.turns(1)
    assert kafka.paused[other] is False
    kafka.events.append(Polled(records(other, [3, 4, 7])))
    bench.turns()
    assert [(r[OFFSET], is_read_again(r)) for r in bench.pool.submitted[1:]] == [
        (4, True), (7, False),
    ]  # fmt: skip
    assert "unsubscribe" not in kafka.calls


def test_nobody_is_asked_where_to_begin_while_the_group_is_left_or_for_what_is_gone(
    bench: Bench,
) -> None:
    other = ("t", 1)
    bench.kafka.unknown = {other}
    bench.kafka.events.append(Assigned((other,), unknown=(other,)))
    bench.turns(1)
    bench.kafka.events.append(Revoked((other,), lost=False))
    bench.turns(1)
    bench.now += 5
    bench.turns()
    bench.kafka.events.append(Assigned((other,), unknown=(other,)))
    bench.turns(1)
    bench.loop.stop_intake()
    bench.now += 5
    bench.turns()
    assert bench.kafka.asked == []


def test_the_group_is_not_joined_anew_before_what_is_not_begun_has_gone_too(bench: Bench) -> None:
    kafka, other = bench.kafka, ("t", 1)
    kafka.events.append(Assigned((other,), unknown=(other,)))
    kafka.silent = True
    bench.arrive(1)
    bench.turns(2)
    kafka.events.append(ConnectionLost("broke"))
    kafka.events.append(Answered(kafka.commits[-1][1], None, {}))
    bench.turns()
    assert kafka.calls == ["subscribe", "unsubscribe"]
    kafka.events.append(Revoked((other,), lost=False))
    bench.turns()
    assert kafka.calls[:3] == ["subscribe", "unsubscribe", "subscribe"]
