"""What judges storms of consumers sees what is lost."""

from __future__ import annotations

from collections import Counter

from tests.support.storm import Books


def books(**dropped: int) -> Books:
    """Of four messages two were never delivered."""
    return Books({(0, 0): ["a-1"], (0, 3): ["a-1"]}, [], {0: 4}, set(), Counter(dropped))


def test_a_loss_that_nobody_has_told_is_unexplained() -> None:
    assert books().unexplained() == {(0, 1), (0, 2)}


def test_what_was_dropped_accounts_for_as_much_as_that_and_no_more() -> None:
    assert books(commit=1).unexplained() == {(0, 1), (0, 2)}
    assert books(commit=2).unexplained() == set()
