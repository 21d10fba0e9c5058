from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.times import EARLIEST, LATEST, later, moment


def test_a_time_in_reach_is_kept() -> None:
    assert moment(1_700_000_000.25) == datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [-1.0, -1e300, float("-inf"), float("nan"), 0.0])
def test_none_is_before_the_epoch(seconds: float) -> None:
    assert moment(seconds) == EARLIEST


@pytest.mark.parametrize("seconds", [1.7e12, 1e300, float("inf"), 253402300800.0])
def test_what_is_too_far_ahead_is_the_last_moment(seconds: float) -> None:
    assert moment(seconds) == LATEST


@given(st.floats(0), st.sampled_from([EARLIEST, datetime(2030, 1, 1, tzinfo=UTC), LATEST]))
def test_what_is_later_is_the_last_moment_at_most(seconds: float, time: datetime) -> None:
    assert time <= later(time, seconds) <= LATEST


@given(st.floats(), st.integers(-1439, 1439))
def test_any_number_is_a_date_in_any_zone(seconds: float, minutes: int) -> None:
    assert moment(seconds).astimezone(timezone(timedelta(minutes=minutes))).year <= 9999
