"""How far records are read ahead of their handling."""

from __future__ import annotations

import pytest

from feedback.client.read_ahead import ReadAhead


class Handling:
    """Of a backlog, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ahead = ReadAhead(lambda: self.now)

    def batch(self, seconds: float) -> int:
        """How many of one batch are given out, each of which takes so many seconds."""
        self.ahead.read()
        given, left = 0, self.ahead.most
        while left and self.ahead.gives():
            given, left = given + 1, left - 1
            self.now += seconds
        self.ahead.handled()
        return given


@pytest.fixture
def handling() -> Handling:
    return Handling()


def test_it_begins_with_one_and_grows_to_what_a_second_is_enough_for(handling: Handling) -> None:
    assert [handling.batch(1 / 64) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 64, 64]


def test_it_has_a_bound_however_quickly_records_are_handled(handling: Handling) -> None:
    assert [handling.batch(0.0) for _ in range(11)][-3:] == [256, 500, 500]


def test_one_at_a_time_where_one_takes_longer_than_a_second(handling: Handling) -> None:
    assert [handling.batch(60.0) for _ in range(3)] == [1, 1, 1]


def test_what_becomes_slow_is_given_out_for_some_seconds_only(handling: Handling) -> None:
    for _ in range(12):
        handling.batch(0.0)
    start = handling.now
    assert handling.batch(2.0) == 3
    assert handling.now - start == 6.0
    assert [handling.batch(2.0) for _ in range(2)] == [1, 1]
    assert handling.batch(0.0) == 1
    assert handling.batch(0.0) == 2, "it has become quick again"


def test_a_batch_gives_a_little_longer_than_was_reckoned(handling: Handling) -> None:
    for _ in range(8):
        handling.batch(1 / 64)
    assert handling.batch(4 / 64) == 64


def test_the_first_of_a_batch_is_given_out_however_late_it_is_asked_for(
    handling: Handling,
) -> None:
    handling.ahead.read()
    handling.now += 3600.0
    assert handling.ahead.gives()
    assert not handling.ahead.gives()


def test_the_wait_for_the_next_batch_says_nothing(handling: Handling) -> None:
    for _ in range(12):
        handling.batch(0.0)
    handling.now += 3600.0
    handling.ahead.handled()
    assert handling.ahead.most == 500
