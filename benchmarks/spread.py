"""Ratios of what was measured side by side, and how far they spread.

Absolute figures of a shared machine drift; a ratio of two neighbours drifts far less. So sides are
measured in turns, each round gives one ratio, and a benchmark reports the median with its spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Side = TypeVar("Side")


@dataclass(frozen=True, slots=True)
class Spread:
    """Where repeated measurements lie."""

    median: float
    low: float
    high: float
    lower_quartile: float
    upper_quartile: float
    count: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} - {self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Median, extremes and quartiles. Raises ValueError where there are no values."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    return Spread(
        median=median(ordered),
        low=ordered[0],
        high=ordered[-1],
        lower_quartile=quantile(ordered, 0.25),
        upper_quartile=quantile(ordered, 0.75),
        count=len(ordered),
    )


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """`ours` over `theirs`, round by round. Raises ValueError where they are no pairs."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The spread of the ratios of interleaved pairs."""
    return spread(ratios(ours, theirs))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of them lie, between neighbours by distance.

    `ordered` is ascending and not empty.
    """
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def in_turns(sides: Sequence[Side], rounds: int) -> Iterator[tuple[int, Side]]:
    """(round, side), each side once a round, every second round the other way about.

    So a drift that goes one way all the time favours no side.
    """
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            yield number, side
