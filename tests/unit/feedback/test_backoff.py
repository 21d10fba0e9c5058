"""Pauses that double, and the breaker that is made of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from feedback.backoff import Backoff, Breaker


def test_pauses_double_up_to_the_cap_until_they_are_reset() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_a_pause_follows_from_the_number_of_tries_alone() -> None:
    backoff = Backoff(0.05, 1.0)
    assert [backoff.after(tries) for tries in (1, 2, 5, 6, 10_000)] == [0.05, 0.1, 0.8, 1.0, 1.0]
    assert backoff.next() == 0.05


def test_a_breaker_pauses_longer_and_longer() -> None:
    breaker = Breaker(jitter=lambda: 1.0)
    assert breaker.pause(0.0) == 0.0
    now, pauses = 0.0, []
    for _ in range(7):
        breaker.failed(now)
        pauses.append(breaker.pause(now))
        now += pauses[-1]
        assert breaker.pause(now) == 0.0
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    breaker.succeeded()
    assert not breaker.open
    breaker.failed(now)
    assert breaker.pause(now) == 1


def test_tries_that_failed_side_by_side_are_one() -> None:
    breaker = Breaker(jitter=lambda: 1.0)
    for _ in range(50):
        breaker.failed(10.0, began=9.0)
    assert breaker.pause(10.0) == 1
    breaker.failed(12.0, began=11.0)
    assert breaker.pause(12.0) == 2


@given(st.floats(0, 1), st.integers(1, 12))
def test_jitter_takes_away_half_of_a_pause_at_most(jitter: float, failures: int) -> None:
    breaker = Breaker(jitter=lambda: jitter)
    for _ in range(failures):
        breaker.failed(100.0)
    full = min(2.0 ** (failures - 1), 30.0)
    assert full / 2 <= breaker.pause(100.0) + 1e-9
    assert breaker.pause(100.0) <= full + 1e-9
