from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer.intake.flow_control import (
    BATCH,
    HOLD,
    LOOK_EVERY,
    NO_ROOM,
    SPARE,
    Crowding,
    FlowControl,
    Reason,
    Room,
)
from processing.pool.backlog import Backlog


def look(flow: FlowControl, *loads: int, at: float = 0.0) -> list[str]:
    """What the flow says to these loads at one time."""
    seen = []
    for load in loads:
        flow.look(load, 0, at)
        seen.append("paused" if flow.paused else "holding" if flow.holding else "open")
    return seen


def test_holds_at_the_bound_until_there_is_room_for_a_batch() -> None:
    flow = FlowControl(100, 1 << 20)
    assert look(flow, 0, 99, 100, 99, 91, 90, 91, 99) == [
        *("open", "open", "holding", "holding", "holding", "open", "open", "open")
    ]
    assert flow.reasons == ()


def test_what_stays_full_is_paused_and_resumed_at_half_of_the_bound() -> None:
    flow = FlowControl(100, 1 << 20)
    assert look(flow, 100, at=10.0) == ["holding"]
    assert look(flow, 95, at=10.0 + HOLD - 0.01) == ["holding"]
    assert look(flow, 95, at=10.0 + HOLD) == ["paused"]
    assert flow.reasons == ("full",)
    assert look(flow, 90, 51, 50, 51, at=20.0) == ["paused", "paused", "open", "open"]
    assert look(flow, 100, at=30.0) == ["holding"]


def test_what_goes_far_beyond_the_bound_is_paused_at_once() -> None:
    flow = FlowControl(100, 1000)
    assert look(flow, 99 + SPARE, 100 + SPARE) == ["holding", "paused"]
    flow = FlowControl(100, 1000)
    flow.polled(10, 100)
    flow.look(1, 1000 + 10 * SPARE, 0.0)
    assert flow.paused


def test_nothing_is_polled_while_it_holds() -> None:
    flow = FlowControl(100, 1 << 20)
    look(flow, 100)
    assert flow.batch(95, 0) == 0


def test_while_full_a_commit_waits_for_room_that_is_worth_one() -> None:
    flow = FlowControl(100, 1 << 20)
    look(flow, 100)
    assert flow.room(95, 0) == NO_ROOM
    assert flow.room(90, 0) == Room(10, 1 << 20)
    look(flow, 90)
    assert flow.room(95, 0) == Room(5, 1 << 20)


def test_bytes_count_as_requests_do() -> None:
    flow = FlowControl(100, 1000)
    flow.look(1, 1000, 0.0)
    assert flow.holding
    flow.look(1, 1000, HOLD)
    assert flow.paused
    flow.look(1, 501, HOLD)
    assert flow.paused
    flow.look(1, 500, HOLD)
    assert not flow.paused


def test_closed_for_a_reason_whatever_room_there_is() -> None:
    flow = FlowControl(100, 1000)
    flow.set(Reason.DATABASE, closed=True)
    flow.set(Reason.DRAINING, closed=True)
    assert flow.paused
    assert flow.reasons == ("database", "draining")
    assert flow.batch(0, 0) == 0
    assert flow.room(0, 0) == NO_ROOM
    flow.set(Reason.DRAINING, closed=False)
    assert flow.paused
    flow.set(Reason.DATABASE, closed=False)
    assert not flow.paused


def test_only_what_fits_is_polled() -> None:
    flow = FlowControl(5000, 10_000)
    assert flow.batch(0, 0) == BATCH  # sizes are not known yet
    flow.polled(10, 1000)
    assert flow.batch(0, 0) == 100
    assert flow.batch(4990, 0) == 10
    assert flow.batch(0, 9_999) == 1
    assert flow.batch(5000, 0) == 0


def test_growth_of_records_counts_at_once_and_shrinking_slowly() -> None:
    flow = FlowControl(5000, 100_000)
    flow.polled(1, 100)
    flow.polled(1, 10_000)
    assert flow.batch(0, 0) == 10
    flow.polled(1, 100)
    assert 10 < flow.batch(0, 0) < 15


def test_room_is_what_is_left_of_the_bound() -> None:
    flow = FlowControl(100, 1000)
    assert flow.room(40, 300) == Room(60, 700)
    assert flow.room(0, 0) == Room(100, 1000)


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 1)), max_size=50))
def test_it_never_flaps(steps: list[tuple[int, float]]) -> None:
    flow, before, now, full_at = FlowControl(100, 1 << 30), False, 0.0, 0.0
    for load, pause in steps:
        now += pause
        was_open = not (flow.paused or flow.holding)
        flow.look(load, 0, now)
        if was_open:
            assert (flow.holding or flow.paused) == (load >= 100)
            full_at = now
        if flow.paused != before:
            assert load >= 100 + SPARE or now - full_at >= HOLD if flow.paused else load <= 50
            before = flow.paused


def test_what_partitions_that_are_paused_for_themselves_hold_need_not_become_free() -> None:
    flow = FlowControl(100, 1 << 20)
    for load, paused in ((100, False), (100, True), (71, True), (70, False)):
        flow.look(load, 0, 0.0 if not (paused or flow.paused) else HOLD, crowded=0.4)
        assert flow.paused == paused, load
    flow = FlowControl(100, 1 << 20)
    flow.look(100, 0, 0.0, crowded=1.0)
    assert flow.holding
    flow.look(99, 0, 0.0, crowded=0.99)
    assert flow.batch(99, 0) == 1
    assert flow.room(99, 0).requests == 1


# Partitions by themselves

HOT, OTHER, THIRD = ("t", 0), ("t", 1), ("t", 2)


def crowd(crowding: Crowding, *waiting: int, seconds: float = 60.0) -> tuple[list[int], list[int]]:
    """Partitions that are paused and resumed, where so many per cent of the bound wait of each."""
    backlogs = {("t", n): Backlog(load, seconds, "slow") for n, load in enumerate(waiting)}
    paused, resumed = crowding.look(backlogs, sum(waiting) / 100, 0.01)
    return [n for _, n in paused], [n for _, n in resumed]


def test_of_one_partition_no_more_may_wait_than_is_left_free() -> None:
    crowding = Crowding()
    assert crowd(crowding, 40, 10) == ([], [])
    assert crowd(crowding, 46, 10) == ([0], [])
    assert HOT in crowding
    assert OTHER not in crowding
    assert crowding.share == 0.46
    assert crowd(crowding, 45, 28) == ([1], [])
    assert crowd(crowding, 30, 20, 20) == ([], []), "resumed at half of what is left free"
    assert crowd(crowding, 10, 30, 20) == ([], [0])
    assert crowd(crowding, 0, 0, 20) == ([], [1])
    assert crowding.share == 0


def test_what_is_done_in_seconds_waits_for_the_workers() -> None:
    crowding = Crowding()
    assert crowd(crowding, 95, seconds=4.9) == ([], [])
    assert crowd(crowding, 95, seconds=5.0) == ([0], [])
    assert crowd(crowding, 95, seconds=4.9) == ([], [0])


def test_it_is_looked_at_now_and_then_and_only_where_much_waits() -> None:
    crowding = Crowding()
    assert not crowding.due(0.49, 1.0)
    assert crowding.due(0.5, 1.0)
    assert not crowding.due(0.9, 1.0 + LOOK_EVERY / 2)
    assert crowding.due(0.9, 1.0 + LOOK_EVERY)
    assert crowd(crowding, 90) == ([0], [])
    assert crowding.due(0.0, 9.0), "who is paused is looked at until he is resumed"
    crowding.revoked([HOT, THIRD])
    assert not crowding.due(0.0, 19.0)


def test_what_may_stand_for_hours_may_take_a_tenth_of_the_bound() -> None:
    """It does not matter how soon it would be done, if a dead worker's session ended."""
    crowding = Crowding()
    assert not crowding.due(0.2, 0.0, 0.1)
    assert crowding.due(0.2, 0.0, 0.11)
    stands, moves = Backlog(110, 0.2, "a", 110), Backlog(90, 0.2, "b", 90)
    assert crowding.look({HOT: stands, THIRD: moves}, 0.2, 0.001) == ([HOT], [])
    fewer = stands._replace(standing=51)
    assert crowding.look({HOT: fewer}, 0.2, 0.001) == ([], [])
    assert crowding.look({HOT: stands._replace(standing=0)}, 0.2, 0.001) == ([], [HOT])
