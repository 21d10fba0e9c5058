"""Who is resumed ahead of the others, so that nobody is never heard."""

from __future__ import annotations

from collections import Counter

import pytest

from consumer.intake.turns import HEAD_START, Turns

A, B, C = PLACES = [("t", n) for n in range(3)]


def opened(turns: Turns, now: float, *, busy: bool = True) -> list[tuple[str, int]]:
    """Everything is paused, and may be resumed: who is at once?"""
    assert turns.due(now, paused=True)
    assert list(turns.change(PLACES, now, paused=True, busy=busy)) == PLACES
    assert turns.due(now, paused=False)
    return list(turns.change(PLACES, now, paused=False, busy=busy))


def test_who_has_not_been_heard_for_longest_is_ahead_and_the_others_follow() -> None:
    turns = Turns()
    assert not turns.due(0.0, paused=False)
    turns.heard([C, A])
    assert opened(turns, 0.0) == [B]
    assert not turns.due(HEAD_START - 0.01, paused=False)
    assert turns.due(HEAD_START, paused=False)
    assert list(turns.change(PLACES, HEAD_START, paused=False, busy=True)) == [A, C]
    assert not turns.due(HEAD_START, paused=False)
    assert opened(turns, 2.0) == [C], "it had its turn, though it said nothing"


def test_the_others_follow_once_it_has_been_heard() -> None:
    turns = Turns()
    assert opened(turns, 0.0) == [A]
    turns.heard([B])
    assert not turns.due(0.1, paused=False)
    turns.heard([A])
    assert list(turns.change(PLACES, 0.1, paused=False, busy=True)) == [B, C]


def test_nobody_is_ahead_of_an_idle_pool_or_once_all_are_paused_again() -> None:
    turns = Turns()
    assert opened(turns, 0.0, busy=False) == PLACES
    assert opened(turns, 0.0) == [A]
    assert opened(turns, 0.1) == [B]
    turns.change(PLACES, 0.2, paused=True, busy=True)
    assert not turns.due(9.0, paused=True)
    assert list(turns.change([A], 9.0, paused=False, busy=True)) == [A]
    assert not turns.due(99.0, paused=False)


@pytest.mark.parametrize("empty", [None, A, C])
def test_whoever_the_client_prefers_nobody_starves(empty: tuple[str, int] | None) -> None:
    """What is resumed first that has anything fills the bound; of several it is the last."""
    turns, filled = Turns(), Counter[tuple[str, int]]()
    for cycle in range(30):
        heard = [place for place in opened(turns, cycle) if place != empty]
        if not heard:
            now = cycle + HEAD_START
            heard = [p for p in turns.change(PLACES, now, paused=False, busy=True) if p != empty]
        filled[heard[-1]] += 1
        turns.heard(heard[-1:])
    assert all(filled[place] >= 8 for place in PLACES if place != empty)
