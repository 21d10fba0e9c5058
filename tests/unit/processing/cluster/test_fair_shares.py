"""How a total is divided: nobody gets more than it needs while others want, the rest is even."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processing.cluster.fair_shares import fair_shares

KIND = "payment.create"
IDS = st.lists(st.text("abc-19", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)
NEEDS = st.dictionaries(st.text("abc-19", min_size=1, max_size=4), st.integers(0, 30), min_size=1)


@pytest.mark.parametrize(
    "total,needs,shares",
    [
        (2, (40, 0), (2, 0)),
        (8, (0, 0), (4, 4)),
        (8, (3, 1), (4, 4)),
        (8, (6, 1), (6, 2)),
        (8, (9, 9), (4, 4)),
        (9, (1, 9, 9), (1, 4, 4)),
        (9, (2, 3, 4), (2, 3, 4)),
        (9, (1, 7, 0), (1, 7, 1)),
    ],
)
def test_examples(total: int, needs: tuple[int, ...], shares: tuple[int, ...]) -> None:
    named = {f"i{n}": need for n, need in enumerate(needs)}
    assert fair_shares(total, named, KIND) == {f"i{n}": share for n, share in enumerate(shares)}


@given(total=st.integers(1, 60), needs=NEEDS, what=st.text(max_size=5), shuffle=st.randoms())
def test_shares_are_fair_and_the_same_whoever_computes_them(
    total: int, needs: dict[str, int], what: str, shuffle: random.Random
) -> None:
    shares = fair_shares(total, needs, what)
    assert shares.keys() == needs.keys()
    assert sum(shares.values()) == total
    capped = {one: min(need, total) for one, need in needs.items()}
    wanting = [one for one in needs if shares[one] < capped[one]]
    beyond = [one for one in needs if shares[one] > capped[one]]
    assert not (wanting and beyond), "somebody has more than it needs while others want"
    # Nobody who wants more sees another one with more than a remainder on top of its own.
    assert all(shares[one] >= max(shares.values()) - 1 for one in wanting)
    # What is left over is with those who have least.
    assert all(shares[one] <= min(shares.values()) + 1 for one in beyond)
    other = list(needs.items())
    shuffle.shuffle(other)
    assert fair_shares(total, dict(other), what) == shares


@given(ids=IDS, new=st.text("xyz", min_size=1, max_size=4))
def test_one_more_instance_takes_from_others_and_moves_nothing_between_them(
    ids: list[str], new: str
) -> None:
    before = fair_shares(1, dict.fromkeys(ids, 1), KIND)
    after = fair_shares(1, dict.fromkeys([*ids, new], 1), KIND)
    assert all(after[one] <= before[one] for one in ids)


def test_the_remainders_of_many_types_fall_to_different_instances() -> None:
    ids = dict.fromkeys(["a", "b", "c", "d"], 1)
    shares = [fair_shares(1, ids, f"type-{n}") for n in range(40)]
    assert {one for found in shares for one, share in found.items() if share} == set(ids)
