"""When the clocks of a time zone are set, forward or back, by whatever it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

LARGEST_CHANGE: Final = timedelta(days=2)
"""By no more are clocks ever set: a zone that changes sides of the date line leaves out a day."""
_PROBED: Final = timedelta(days=1)
"""Nowhere are clocks set and set back within that."""
_RESOLUTION: Final = timedelta(seconds=1)


class ClockChange(NamedTuple):
    """A moment in which clocks are set."""

    at: datetime
    """In UTC. It has the new time already."""
    before: timedelta
    """What clocks were ahead of UTC until then."""
    after: timedelta
    """What they are from then on."""


def offset_at(tz: str, at: datetime) -> timedelta:
    """What the clocks of the zone are ahead of UTC."""
    return at.astimezone(ZoneInfo(tz)).utcoffset() or timedelta()


def clock_changes(tz: str, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """Those after the one time and up to the other, in their order. Both in UTC."""
    for year in range(after.year, until.year + 1):
        for change in _changes_in(tz, year):
            if after < change.at <= until:
                yield change


@lru_cache(maxsize=1000)
def _changes_in(tz: str, year: int) -> tuple[ClockChange, ...]:
    """Also the one with which the year ends, without the one with which it begins."""
    found: list[ClockChange] = []
    low = datetime(year, 1, 1, tzinfo=UTC)
    end = datetime(year + 1, 1, 1, tzinfo=UTC)
    before = offset_at(tz, low)
    while low < end:
        high = min(low + _PROBED, end)
        after = offset_at(tz, high)
        if after != before:
            found.append(ClockChange(_first_with(tz, after, low, high), before, after))
        low, before = high, after
    return tuple(found)


def _first_with(tz: str, offset: timedelta, low: datetime, high: datetime) -> datetime:
    while high - low > _RESOLUTION:
        middle = low + (high - low) // 2 // _RESOLUTION * _RESOLUTION
        if offset_at(tz, middle) == offset:
            high = middle
        else:
            low = middle
    return high
