"""How long requests waited and ran, counted into buckets by whoever ran them. Pure.

A worker counts what a chunk's requests took and reports numbers of requests by bucket, never the
times themselves; who shows them adds the numbers up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias

BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0),
)
"""Upper bounds of the buckets, in seconds; one more has no bound."""
SUM: Final = -1
"""In place of a bucket: the seconds of all of them together."""

RUN, WAIT, DONE = 0, 1, 2
"""What was measured. Plain numbers, as they cross a channel."""

DurationKey: TypeAlias = tuple[str, int, int]
"""(request type, what was measured, bucket)"""
DurationCounts: TypeAlias = Mapping[DurationKey, float]
"""Requests by bucket, and seconds under `SUM`."""


class Durations:
    """What was measured of some requests."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[DurationKey, float] = {}

    def add(self, kind: str, what: int, seconds: list[float]) -> None:
        """Counts what requests of one type took; sorts `seconds`. None of them may be missing.

        Clocks of two machines differ: what ended before it began took no time.
        """
        # Sorted, it takes a search for each bucket that has something and none for each request.
        seconds.sort()
        if seconds and seconds[0] < 0.0:
            seconds = [max(0.0, one) for one in seconds]
        counts, done, number = self.counts, 0, len(seconds)
        while done < number:
            bucket = bisect_left(BOUNDS, seconds[done])
            until = number if bucket == len(BOUNDS) else bisect_right(seconds, BOUNDS[bucket], done)
            key = (kind, what, bucket)
            counts[key] = counts.get(key, 0) + until - done
            done = until
        if number:
            key = (kind, what, SUM)
            counts[key] = counts.get(key, 0.0) + sum(seconds)
