"""Claims of fewer rows than there are types, one after the other, on real PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from feedback.journal.type_turns import TypeTurns
from tests.support.claiming import ids, reference, take
from tests.support.waiting_rows import WaitingRows


@pytest.fixture
def claims(rows: WaitingRows) -> Callable[..., Counter[str]]:
    """Makes claims of so many rows; how many there were of each type."""
    turns, orders = TypeTurns(), iter(range(100, 1000))

    def make(n: int, most: int, paused: Sequence[Sequence[str]] = ((),)) -> Counter[str]:
        taken: Counter[str] = Counter()
        for i in range(n):
            unwanted = paused[i % len(paused)]
            haul = take(rows, most, next(orders), turns=turns, paused=unwanted)
            assert len(haul.rows) == most
            taken.update(name.partition("-")[0] for name in ids(haul))
        return taken

    return make


def backlog(rows: WaitingRows, types: int, n: int = 9) -> None:
    """So many rows of each type, of which those of the first one came due first."""
    for t in range(types):
        rows.add(*(f"t{t}-{i}" for i in range(n)), type=f"t{t}", due_in=t - 20.0)


def test_each_type_has_its_turn_where_few_rows_are_wanted(
    rows: WaitingRows, claims: Callable[..., Counter[str]]
) -> None:
    """Those whose rows came due first would have all as long as they have a backlog."""
    backlog(rows, 8)
    assert claims(1, 3).keys() == {"t0", "t1", "t2"}, "that have been due longest"
    assert claims(2, 3).keys() == {"t3", "t4", "t5", "t6", "t7", "t0"}
    assert set(claims(8, 3).values()) == {3}


def test_what_cannot_be_divided_goes_round(
    rows: WaitingRows, claims: Callable[..., Counter[str]]
) -> None:
    backlog(rows, 3, 12)
    assert claims(3, 4) == dict.fromkeys(("t0", "t1", "t2"), 4)


def test_each_type_has_its_turn_though_some_are_wanted_at_times_only(
    rows: WaitingRows, claims: Callable[..., Counter[str]]
) -> None:
    backlog(rows, 5)
    taken = claims(12, 1, paused=[["t0", "t1"], []])
    assert taken.keys() == {"t0", "t1", "t2", "t3", "t4"}


def test_a_type_that_comes_new_has_its_turn_and_not_that_of_others(
    rows: WaitingRows, claims: Callable[..., Counter[str]]
) -> None:
    backlog(rows, 3)
    taken: Counter[str] = Counter()
    for n in range(6):
        rows.add(f"n{n}-0", type=f"n{n}", due_in=-30.0)
        taken += claims(1, 1)
    assert taken == {"n0": 1, "t0": 2, "t1": 1, "t2": 1, "n1": 1}


def test_types_of_which_none_may_start_have_had_their_turn(
    rows: WaitingRows, claims: Callable[..., Counter[str]]
) -> None:
    """Their rows wait behind those of their references, which may run for hours."""
    for n in range(4):
        reference(rows, f"old{n}", type=f"r{n}", due_in=n - 50.0)
        take(rows, order=n + 1)
        reference(rows, f"new{n}", type=f"r{n}", due_in=n - 40.0, produced_in=-30)
    backlog(rows, 3)
    assert claims(6, 1).keys() == {"t0", "t1", "t2"}
