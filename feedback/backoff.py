"""When to try a service again that failed. A decision without I/O: events and a clock in."""

from __future__ import annotations

import random
from collections.abc import Callable


class Breaker:
    """Open after a failure: the next try comes after a pause that doubles up to a cap.

    Half of each pause is jitter, so that many processes do not come back in step.
    """

    def __init__(
        self,
        first: float = 1.0,
        cap: float = 30.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.open = False
        self._first = first
        self._cap = cap
        self._jitter = jitter
        self._pause = 0.0
        self._due = 0.0

    def failed(self, now: float) -> None:
        """A try at `now` failed."""
        self._pause = min(self._pause * 2, self._cap) if self.open else self._first
        self.open = True
        self._due = now + self._pause * (0.5 + 0.5 * self._jitter())

    def succeeded(self) -> None:
        """A try succeeded: no more pauses."""
        self.open = False

    def pause(self, now: float) -> float:
        """Seconds until the next try may be made; 0 when it may be made now."""
        return max(0.0, self._due - now) if self.open else 0.0
