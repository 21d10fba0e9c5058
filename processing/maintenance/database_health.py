"""When the maintenance process tries the database, and what of it the main process hears. Pure.

up -- a statement failed, or main asked --> in doubt, tried at once -- success --> up
                                             |  ^
                                      failure|  |the pause is over
                                             v  |
                                            down
"""

from __future__ import annotations

import random
from collections.abc import Callable

from feedback.backoff import Breaker

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0


class DatabaseHealth:
    """This process's view of the database."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self.up = False
        self._breaker = Breaker(FIRST_PAUSE, LONGEST_PAUSE, jitter)
        self._wanted = True
        """A try is wanted as soon as the pause allows."""
        self._told: tuple[bool, bool] | None = None
        """What the main process was told last, and whether the server had turned this one away;
        None where it waits for an answer."""

    def ask(self) -> None:
        """The main process says that the database is away, and wants to know when it is back."""
        self._wanted = True
        self._told = None

    def doubt(self) -> None:
        """A statement failed as if the database were away: only a try can tell."""
        self._wanted = True

    @property
    def sure(self) -> bool:
        """It is there, as far as is known, and nobody doubts it."""
        return self.up and not self._wanted

    def pause(self, now: float) -> float | None:
        """Seconds until the next try; 0 when it is due, None while none is wanted."""
        if not self._wanted:
            return None
        return self._breaker.pause(now)

    def succeeded(self) -> bool:
        """A try reached the database. True when the main process has to be told."""
        self.up = True
        self._wanted = False
        self._breaker.succeeded()
        return self._tell(up=True)

    def failed(self, now: float, *, turned_away: bool = False) -> bool:
        """A try did not reach it. True when the main process has to be told."""
        self.up = False
        self._wanted = True
        self._breaker.failed(now)
        return self._tell(up=False, turned_away=turned_away)

    def _tell(self, *, up: bool, turned_away: bool = False) -> bool:
        before, self._told = self._told, (up, turned_away)
        return self._told != before
