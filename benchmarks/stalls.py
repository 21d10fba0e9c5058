"""Where nothing was finished for a while, and what had happened then.

Pure: times and events in, stalls out. All times are seconds of one clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

UNDISTURBED = "undisturbed"
"""The cause of a stall before which nothing had happened."""
SLACK = 1.0
"""Seconds by which a stall may begin before what caused it: about the longest of a busy group that
nobody disturbs."""


class Event(NamedTuple):
    """Something was done to the group."""

    at: float
    kind: str


class Stall(NamedTuple):
    """From one finished request to the next one."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.begin


def gaps(times: Sequence[float], begin: float, end: float) -> Iterable[Stall]:
    """Each gap between neighbours of `times` (ascending), cut to [begin, end].

    The time before the first and after the last one counts: requests were due all along.
    """
    inside = times[bisect_left(times, begin) : bisect_right(times, end)]
    return (Stall(a, b) for a, b in pairwise([begin, *inside, end]))


def longest(times: Sequence[float], begin: float, end: float) -> float:
    """Seconds of the longest gap."""
    return max(stall.seconds for stall in gaps(times, begin, end))


def cause(stall: Stall, events: Sequence[Event]) -> str:
    """The kind of the last event before the stall, or within SLACK of its begin.

    `events` are ascending. Not of one inside the stall: what came later did not begin it.
    """
    latest = min(stall.begin + SLACK, stall.end)
    before = bisect_right(events, latest, key=lambda event: event.at)
    return events[before - 1].kind if before else UNDISTURBED


def longest_by_cause(
    times_of: Mapping[int, Sequence[float]], begin: float, end: float, events: Sequence[Event]
) -> dict[str, float]:
    """Seconds of the longest stall of any partition, by its cause.

    `times_of` has the ascending times of each partition; one without any stood still all along.
    """
    found: dict[str, float] = {}
    for times in times_of.values():
        for stall in gaps(times, begin, end):
            kind = cause(stall, events)
            found[kind] = max(found.get(kind, 0.0), stall.seconds)
    return found


def rates(times: Sequence[float], begin: float, end: float, width: float) -> list[float]:
    """How many a second, in bins of `width` seconds; one that does not fit is left out."""
    count = int((end - begin) / width + 1e-9)
    edges = [bisect_left(times, begin + width * number) for number in range(count + 1)]
    return [(b - a) / width for a, b in pairwise(edges)]
