from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stalls import (
    SLACK,
    UNDISTURBED,
    Event,
    Stall,
    cause,
    gaps,
    longest,
    longest_by_cause,
    rates,
)

EVENTS = [Event(10.0, "join"), Event(15.0, "kill")]


def test_the_time_before_the_first_and_after_the_last_one_counts() -> None:
    assert list(gaps([2.0, 3.0], 0.0, 7.0)) == [Stall(0, 2), Stall(2, 3), Stall(3, 7)]
    assert longest([2.0, 3.0], 0.0, 7.0) == 4.0
    assert longest([], 1.0, 7.0) == 6.0


def test_what_was_finished_outside_of_the_stretch_shortens_no_stall() -> None:
    assert longest([0.5, 9.5], 1.0, 9.0) == 8.0


@given(st.lists(st.floats(0, 20)), st.floats(0, 10), st.floats(10, 20))
def test_gaps_cover_the_stretch_without_overlap(
    times: list[float], begin: float, end: float
) -> None:
    found = list(gaps(sorted(times), begin, end))
    assert found[0].begin == begin
    assert found[-1].end == end
    assert all(a.end == b.begin for a, b in pairwise(found))


@pytest.mark.parametrize(
    "begin, end, kind",
    [
        (1.0, 2.0, UNDISTURBED),
        (8.9, 13.0, UNDISTURBED),  # began long before the event that lies in it
        (10.0 - SLACK, 13.0, "join"),  # a chunk was under way
        (9.8, 9.9, UNDISTURBED),  # over before the event
        (13.9, 19.0, "join"),
        (14.9, 23.0, "kill"),
        (19.0, 20.0, "kill"),
    ],
)
def test_a_stall_is_due_to_the_last_event_before_it_began(
    begin: float, end: float, kind: str
) -> None:
    assert cause(Stall(begin, end), EVENTS) == kind


def test_the_longest_of_any_partition_for_each_cause() -> None:
    times = {0: [1.0, 9.0, 10.5, 14.0, 15.0, 19.0], 1: [n / 2 for n in range(41)]}
    assert longest_by_cause(times, 0.0, 20.0, EVENTS) == {
        UNDISTURBED: 8.0,
        "join": 3.5,
        "kill": 4.0,
    }


def test_a_partition_without_any_request_stood_still_all_along() -> None:
    assert longest_by_cause({0: []}, 5.0, 20.0, []) == {UNDISTURBED: 15.0}


def test_rates_are_per_second_and_a_bin_that_does_not_fit_is_left_out() -> None:
    assert rates([10.0, 10.1, 10.4, 10.6, 11.2], 10.0, 11.2, 0.5) == [6.0, 2.0]
    assert rates([], 0.0, 1.0, 0.5) == [0.0, 0.0]
