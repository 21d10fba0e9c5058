"""How often somebody may call, and how many wait at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RateLimit:
    """So many calls a second, with bursts of twice as many, at least of one; 0: any number."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, 2 * rate)
        self._left = self._most
        self._at = 0.0

    def take(self, now: float) -> float:
        """0 where a call may be made at `now`, and counts; else the seconds until one may."""
        if not self._rate:
            return 0.0
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._rate


class WaitSlots:
    """Waits for answers, or calls, of which there are at most so many at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0

    @contextmanager
    def slot(self, *, wanted: bool) -> Iterator[bool]:
        """Whether there is one, where one is wanted; given back at the end."""
        if not wanted or self.taken >= self._most:
            yield False
            return
        self.taken += 1
        try:
            yield True
        finally:
            self.taken -= 1
