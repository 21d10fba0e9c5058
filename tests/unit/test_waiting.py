from __future__ import annotations

import pytest

from tests.support import eventually


def test_returns_the_first_true_value() -> None:
    values = iter([0, "", 7, 8])
    assert eventually(lambda: next(values)) == 7


def test_takes_a_failed_assertion_for_not_yet() -> None:
    seen: list[int] = []

    def condition() -> bool:
        seen.append(1)
        assert len(seen) > 2
        return True

    assert eventually(condition)


def test_says_what_did_not_come_true() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: the queue is empty.*last.*\[\]"):
        eventually(list, timeout=0.01, message="the queue is empty")


def test_shows_the_last_failed_assertion() -> None:
    def condition() -> bool:
        raise AssertionError("three are missing")

    with pytest.raises(AssertionError, match="three are missing"):
        eventually(condition, timeout=0.01)


def test_other_errors_are_raised_at_once() -> None:
    calls: list[int] = []

    def condition() -> bool:
        calls.append(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        eventually(condition)
    assert len(calls) == 1
