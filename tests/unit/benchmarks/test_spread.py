from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.spread import in_turns, quantile, ratio, ratios, spread

FIGURES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=30)


def test_median_extremes_and_quartiles() -> None:
    found = spread([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (found.median, found.low, found.high, found.count) == (3.0, 1.0, 5.0, 5)
    assert (found.lower_quartile, found.upper_quartile) == (2.0, 4.0)
    assert str(found) == "3.00 (1.00 - 5.00)"


@given(FIGURES)
def test_a_spread_is_in_order_whatever_the_order_of_its_values(values: list[float]) -> None:
    found = spread(values)
    assert found == spread(values[::-1])
    assert (
        found.low <= found.lower_quartile <= found.median <= found.upper_quartile <= found.high
        or found.high == pytest.approx(found.low)
    )


def test_one_value_is_its_own_spread_and_none_is_refused() -> None:
    assert set(spread([7.0]).__getstate__()[:5]) == {7.0}  # type: ignore[index]
    with pytest.raises(ValueError, match="nothing was measured"):
        spread([])


def test_a_quantile_between_two_values_is_between_them() -> None:
    assert quantile([0.0, 10.0], 0.99) == pytest.approx(9.9)


def test_ratios_are_of_neighbours_not_of_medians() -> None:
    # A machine that halves its speed in the second round changes no ratio.
    assert ratios([100.0, 50.0], [200.0, 100.0]) == [0.5, 0.5]
    assert ratio([100.0, 50.0], [200.0, 100.0]).median == 0.5
    with pytest.raises(ValueError, match="argument 2"):
        ratios([1.0, 2.0], [1.0])


def test_sides_take_turns_and_every_second_round_goes_the_other_way() -> None:
    assert list(in_turns("ab", 3)) == [
        (0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b"),
    ]  # fmt: skip
