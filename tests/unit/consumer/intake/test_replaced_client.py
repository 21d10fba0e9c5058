"""A client that failed for good and was replaced: this process is another member already."""

from __future__ import annotations

import pytest

from consumer.intake.events import Answered, Assigned, ConnectionLost, Event, JoinedAnew, Revoked
from tests.support.loop_bench import A, Bench


@pytest.mark.parametrize("code", ["_FATAL", "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID"])
@pytest.mark.parametrize("read_back", ["at once", "later"])
def test_the_new_membership_is_not_given_up_for_a_commit_of_the_one_before(
    code: str, read_back: str
) -> None:
    bench = Bench()
    bench.kafka.silent = True
    bench.arrive(0, 1)
    bench.turns()
    answer = Answered("1;me-1;", code, {A: code})
    anew = (Revoked((A,), lost=True), Assigned((A,)))
    bench.kafka.events += [JoinedAnew(), answer, *anew]
    if read_back == "at once":
        bench.kafka.found = {A: (0, None)}
    bench.turns()
    bench.kafka.found = {A: (0, None)}
    bench.now += 5.0
    bench.turns()
    bench.kafka.silent = False
    bench.arrive(0, 1)
    bench.turns(5)
    assert "unsubscribe" not in bench.kafka.calls
    assert bench.loop.stats().counts["rejoins"] == 1
    assert [record[2] for record in bench.pool.submitted] == [0, 1]


@pytest.mark.parametrize(
    "events",
    [
        (ConnectionLost("broke"), JoinedAnew()),
        (JoinedAnew(), ConnectionLost("broke")),
    ],
)
def test_what_a_connection_of_the_one_before_held_is_void_in_the_new_membership(
    events: tuple[Event, ...],
) -> None:
    bench = Bench()
    bench.kafka.silent = True
    bench.arrive(0, 1)
    bench.turns()
    answer = Answered("1;me-1;", "_TRANSPORT", {})
    bench.kafka.events += [*events, Revoked((A,), lost=True), answer, Assigned((A,))]
    bench.kafka.found = {A: (0, None)}
    bench.turns()
    bench.kafka.silent = False
    bench.arrive(0, 1)
    bench.turns(5)
    assert "unsubscribe" not in bench.kafka.calls
    assert bench.loop.stats().counts["rejoins"] == 1
    assert [record[2] for record in bench.pool.submitted] == [0, 1]


def test_a_commit_of_the_new_membership_may_end_it() -> None:
    bench = Bench()
    bench.kafka.events += [JoinedAnew(), Revoked((A,), lost=True), Assigned((A,))]
    bench.kafka.error, bench.kafka.found = "UNKNOWN_MEMBER_ID", {A: (0, None)}
    bench.arrive(0, 1)
    bench.turns(2)
    assert "unsubscribe" in bench.kafka.calls


def test_a_commit_that_was_never_sent_need_not_be_read_back() -> None:
    bench = Bench()
    bench.kafka.refuse = "UNKNOWN_MEMBER_ID"
    bench.arrive(0, 1)
    bench.turns(2)
    assert bench.kafka.calls == ["subscribe", "committed", "unsubscribe", "subscribe"]
    assert bench.loop.stats().counts["drop:put out of the group"] == 2
