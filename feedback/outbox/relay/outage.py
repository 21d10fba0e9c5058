"""A service that may be away: why, when to try again, and what of that is news."""

from __future__ import annotations

import time
from collections.abc import Callable

from feedback.backoff import Breaker


class RelayOutage:
    """One service, as whoever asks it finds it. The caller says in the log what is news."""

    def __init__(self, why: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`why` it counts as away before it was asked at all."""
        self.why = why
        """None where it is not known to be away."""
        self._clock = clock
        self._breaker = Breaker()

    @property
    def pause(self) -> float:
        """Seconds until it may be asked again."""
        return self._breaker.pause(self._clock())

    def begin(self, why: str) -> bool:
        """It has not answered. Whether it did before."""
        news = not self._breaker.open
        self.why = why
        self._breaker.failed(self._clock())
        return news

    def rest(self) -> None:
        """There is nothing to ask it with: nobody knows, and that it answers will be news."""
        self.why = None

    def end(self) -> bool:
        """It has answered. Whether it was away."""
        news = self._breaker.open or self.why is not None
        self.why = None
        self._breaker.succeeded()
        return news
