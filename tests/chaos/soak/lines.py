"""Lines through points that a few outliers do not bend. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import median

Point = tuple[float, float]
MOST = 150
"""Points of which all pairs are looked at."""


def slope(points: Sequence[Point]) -> float:
    """By Theil and Sen: the median of the slopes of all pairs; 0 where there are none.

    Up to three points in ten may lie anywhere without moving it.
    """
    some = points[:: len(points) // MOST + 1]
    slopes = [
        (later - earlier) / (end - begin)
        for (begin, earlier), (end, later) in itertools.combinations(some, 2)
        if end != begin
    ]
    return median(slopes) if slopes else 0.0


def level(points: Sequence[Point]) -> float:
    """The median of the values; 0 where there are none."""
    return median(value for _, value in points) if points else 0.0
