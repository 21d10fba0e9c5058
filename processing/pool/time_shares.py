"""Who has had least of the workers' time goes next. Pure.

Start-time fair queueing: each share has a clock that runs by the seconds it was served. One that
had nothing to do for a while joins at the common clock, so it is owed nothing for that; one that
was served more than its part keeps that debt.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MOST_REMEMBERED: Final = 1000


class TimeShares(Generic[Key]):
    """Equal shares of time for whoever has something to do."""

    def __init__(self) -> None:
        self._clocks: dict[Key, float] = {}
        self._now = 0.0

    def in_turn(self, keys: Iterable[Key]) -> list[Key]:
        """These keys, the one that had least first; in the given order where that is the same."""
        return sorted(keys, key=lambda key: max(self._now, self._clocks.get(key, 0.0)))

    def served(self, key: Key, seconds: float) -> None:
        """One was given so many seconds."""
        self._now = max(self._now, self._clocks.get(key, 0.0))
        self._clocks[key] = self._now + seconds
        if len(self._clocks) > MOST_REMEMBERED:
            self._clocks = {k: clock for k, clock in self._clocks.items() if clock > self._now}
