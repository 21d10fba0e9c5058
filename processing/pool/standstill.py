"""Whether anything starts here: rows of the waiting queue are for those who start them. Pure."""

from __future__ import annotations

from typing import Final

from processing.pool.calls import SeatedCalls
from processing.pool.demand import PATIENCE
from processing.pool.workers import Workers

ROWS_FIRST: Final = 1.0
"""Seconds at most that what comes free is kept for rows that were given back."""


class Standstill:
    """No worker reaches the database, or for long none had room or came to the end of anything.

    Then due rows are others' to run: none are wanted, and those that wait are given back. Others
    may be as busy: where some were given back, the first worker that comes free waits for a moment
    for rows. Else it would begin another long run before any could be claimed, and so for ever.
    """

    def __init__(self, crew: Workers, calls: SeatedCalls) -> None:
        self._crew = crew
        self._calls = calls
        self._moved = True
        self._since = 0.0
        """Since when nothing could start."""
        self.holds = False
        """As it was looked last."""
        self._gave_back = False
        self._rows_until = float("-inf")

    def moved(self) -> None:
        """A worker is done with something, and what waits behind it may start."""
        self._moved = True

    def gave_back(self) -> None:
        """Rows went back while it holds."""
        self._gave_back = True

    def rows_came(self) -> None:
        """They share what is free with all that waits."""
        self._rows_until = float("-inf")

    def rows_first(self, now: float) -> bool:
        """Whether what is free is kept for rows that are claimed meanwhile."""
        if self.holds:
            self.look(now)
        return now < self._rows_until

    def look(self, now: float) -> bool:
        """Whether it holds now."""
        held = self.holds
        if self._moved or self._calls.has_room:
            self._moved, self._since = False, now
        self.holds = self._crew.cut_off or now - self._since >= PATIENCE
        if held and not self.holds and self._gave_back:
            self._gave_back, self._rows_until = False, now + ROWS_FIRST
        return self.holds
