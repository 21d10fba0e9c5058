"""How far records are read ahead of their handling."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_MOST: Final = 500
_SECONDS: Final = 1.0
_TOO_OLD: Final = 5.0


class ReadAhead:
    """As many as are handled in a second, at most 500. What takes five is better read again.

    Who reads nothing for too long loses its place in its group, cannot keep any more what it has
    handled, and holds up all others of the group while partitions are assigned anew.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = 1
        """So many the next batch may have."""
        self._clock = clock
        self._read_at = 0.0
        self._given = 0  # of the batch that was read last

    def read(self) -> None:
        """A batch was."""
        self._read_at, self._given = self._clock(), 0

    def gives(self) -> bool:
        """Whether the next one of the batch may be given out; the first of each always may.

        Asked before each one, when those before it have been handled.
        """
        fresh = not self._given or self._clock() - self._read_at < _TOO_OLD
        self._given += fresh
        return fresh

    def handled(self) -> None:
        """All that was given out of the batch has been."""
        if self._given:
            seconds = max(self._clock() - self._read_at, 1e-6)
            in_time = int(self._given * _SECONDS / seconds)
            self.most = max(1, min(_MOST, 2 * self.most, in_time))
            self._given = 0
