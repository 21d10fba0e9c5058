from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer.flow import BATCH, NO_ROOM, Flow, Reason, Room


def test_paused_at_the_bound_and_resumed_at_half_of_it() -> None:
    flow = Flow(100, 1 << 20)
    seen = []
    for load in (0, 99, 100, 99, 51, 50, 51, 99):
        flow.look(load, 0)
        seen.append(flow.paused)
    assert seen == [False, False, True, True, True, False, False, False]


def test_bytes_count_as_requests_do() -> None:
    flow = Flow(100, 1000)
    flow.look(1, 1000)
    assert flow.paused
    assert flow.reasons == ("full",)
    flow.look(1, 501)
    assert flow.paused
    flow.look(1, 500)
    assert not flow.paused


def test_closed_for_a_reason_whatever_room_there_is() -> None:
    flow = Flow(100, 1000)
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
    flow = Flow(5000, 10_000)
    assert flow.batch(0, 0) == BATCH  # sizes are not known yet
    flow.polled(10, 1000)
    assert flow.batch(0, 0) == 100
    assert flow.batch(4990, 0) == 10
    assert flow.batch(0, 9_999) == 1
    assert flow.batch(5000, 0) == 0


def test_growth_of_records_counts_at_once_and_shrinking_slowly() -> None:
    flow = Flow(5000, 100_000)
    flow.polled(1, 100)
    flow.polled(1, 10_000)
    assert flow.batch(0, 0) == 10
    flow.polled(1, 100)
    assert 10 < flow.batch(0, 0) < 15


def test_room_is_what_is_left_of_the_bound() -> None:
    flow = Flow(100, 1000)
    assert flow.room(40, 300) == Room(60, 700, idle=False)
    assert flow.room(0, 0) == Room(100, 1000, idle=True)


@given(st.lists(st.integers(0, 200), max_size=50))
def test_it_never_flaps(loads: list[int]) -> None:
    flow, before, at = Flow(100, 1 << 30), False, 0
    for load in loads:
        flow.look(load, 0)
        if flow.paused != before:
            assert load >= 100 if flow.paused else load <= 50
            before, at = flow.paused, load
    assert at >= 0
