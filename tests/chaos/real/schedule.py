"""Which fault strikes when, from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Planned:
    """One fault that is to strike."""

    after: float
    """Seconds of calm before it, once the one before in its lane is over."""
    kind: str
    seed: int
    """For what the fault itself draws."""


def schedule(
    seed: int, lane: str, weights: Mapping[str, float], calm: float, share: tuple[int, int] = (0, 1)
) -> Sequence[Planned]:
    """A long row of faults of one lane; every kind comes once before any comes often.

    `calm` is the mean pause between two of them. `share`: which of how many shares of the kinds
    comes first here, where several episodes see to it together that every kind comes.
    """
    chance = random.Random(f"{seed}-{lane}")
    kinds = [kind for kind, weight in weights.items() if weight > 0]
    row: list[str] = []
    if kinds:
        number, shares = share
        first = kinds[number::shares]
        row = chance.sample(first, len(first))
        row += chance.choices(kinds, [weights[kind] for kind in kinds], k=5000)
    return [
        Planned(min(chance.expovariate(1 / calm), 4 * calm), kind, chance.randrange(2**31))
        for kind in row
    ]
