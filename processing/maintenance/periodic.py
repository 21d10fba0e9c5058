"""When which duty is due. Pure: the clock comes with each call."""

from __future__ import annotations

from collections.abc import Mapping


class PeriodicDuties:
    """Duties that come again and again, each with its own interval.

    The next time counts from the moment a duty was taken, so one that took long is not made up for.
    """

    def __init__(self, intervals: Mapping[str, float], now: float) -> None:
        self._intervals = dict(intervals)
        self._due = {duty: now + interval for duty, interval in intervals.items()}

    def take(self, now: float) -> list[str]:
        """The duties that are due, in the order in which they were given."""
        due = [duty for duty, at in self._due.items() if at <= now]
        for duty in due:
            self._due[duty] = now + self._intervals[duty]
        return due

    def hasten(self, duty: str, now: float) -> None:
        """Makes a duty due now."""
        self._due[duty] = now

    def pause(self, now: float) -> float:
        """Seconds until the next duty is due."""
        return max(0.0, min(self._due.values()) - now)
