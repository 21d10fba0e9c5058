"""Whether anything starts here: rows of the waiting queue are for those who start them. Pure."""

from __future__ import annotations

from processing.pool.calls import SeatedCalls
from processing.pool.demand import PATIENCE
from processing.pool.workers import Workers


class Standstill:
    """No worker reaches the database, or for long none had room or came to the end of anything.

    Then due rows are others' to run: none are wanted, and those that wait are given back.
    """

    def __init__(self, crew: Workers, calls: SeatedCalls) -> None:
        self._crew = crew
        self._calls = calls
        self._moved = True
        self._since = 0.0
        """Since when nothing could start."""
        self.holds = False
        """As it was looked last."""

    def moved(self) -> None:
        """A worker is done with something, and what waits behind it may start."""
        self._moved = True

    def look(self, now: float) -> bool:
        """Whether it holds now."""
        if self._moved or self._calls.has_room:
            self._moved, self._since = False, now
        self.holds = self._crew.cut_off or now - self._since >= PATIENCE
        return self.holds
