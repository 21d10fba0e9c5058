"""Buckets are counted as a search for each request would count them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.metrics.durations import BOUNDS, DONE, RUN, SUM, WAIT, Durations

SECONDS = st.one_of(
    st.sampled_from(BOUNDS), st.floats(-5.0, 20_000.0), st.floats(0.0, 0.01)
)  # fmt: skip


@given(st.lists(st.lists(SECONDS, max_size=30), max_size=4))
def test_each_request_is_in_its_bucket_and_their_seconds_are_kept(
    chunks: list[list[float]],
) -> None:
    durations = Durations()
    for chunk in chunks:
        durations.add("pay", RUN, list(chunk))
    took = [max(0.0, one) for chunk in chunks for one in chunk]
    found = dict(durations.counts)
    assert found.pop(("pay", RUN, SUM), 0.0) == pytest.approx(sum(took))
    assert found == Counter(("pay", RUN, bisect_left(BOUNDS, one)) for one in took)


def test_types_and_what_was_measured_are_told_apart() -> None:
    durations = Durations()
    durations.add("a", RUN, [0.001])
    durations.add("a", WAIT, [8_000.0])
    durations.add("b", DONE, [])
    assert durations.counts == {
        ("a", RUN, 0): 1, ("a", RUN, SUM): 0.001,
        ("a", WAIT, len(BOUNDS)): 1, ("a", WAIT, SUM): 8_000.0,
    }  # fmt: skip


def test_bounds_rise() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
