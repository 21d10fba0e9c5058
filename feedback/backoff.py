"""Pauses between tries that fail, or that find nothing. Decisions without I/O."""

from __future__ import annotations

import random
from collections.abc import Callable

_MOST_DOUBLINGS = 64
"""Beyond, the cap has long been reached, and a float must not overflow."""


class Backoff:
    """Pauses that double from `first` up to `cap` seconds.

    `jitter` draws from 0 to 1 how much of half a pause stays, so that many processes do not come
    back in step; None: pauses are exact.
    """

    def __init__(self, first: float, cap: float, jitter: Callable[[], float] | None = None) -> None:
        self._first = first
        self._cap = cap
        self._jitter = jitter
        self._tries = 0

    def after(self, tries: int) -> float:
        """Seconds to wait after so many tries in a row that failed, at least one."""
        pause = min(self._first * 2.0 ** min(tries - 1, _MOST_DOUBLINGS), self._cap)
        return pause if self._jitter is None else pause * (0.5 + 0.5 * self._jitter())

    def next(self) -> float:
        """Seconds to wait now, after one more try that failed."""
        self._tries += 1
        return self.after(self._tries)

    def reset(self) -> None:
        """A try was worth it: the next pause is the shortest again."""
        self._tries = 0


class Breaker:
    """Open after a failure: the next try comes after a pause that doubles up to a cap."""

    def __init__(
        self,
        first: float = 1.0,
        cap: float = 30.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.open = False
        self._backoff = Backoff(first, cap, jitter)
        self._due = 0.0
        self._failed_at = float("-inf")

    def failed(self, now: float, began: float | None = None) -> None:
        """A try failed at `now`. One that others had made meanwhile, and lost, counts with theirs.

        `began`: where several are made side by side, when this one was.
        """
        if began is not None and began <= self._failed_at:
            return
        self._failed_at = now
        self.open = True
        self._due = now + self._backoff.next()

    def succeeded(self) -> None:
        """A try succeeded: no more pauses."""
        self.open = False
        self._backoff.reset()

    def pause(self, now: float) -> float:
        """Seconds until the next try may be made; 0 when it may be made now."""
        return max(0.0, self._due - now) if self.open else 0.0
