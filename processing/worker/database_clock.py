"""What time it is by the database's clock: what waits is due by that one, not by the worker's.

It is asked when a connection is made, and with a BEGIN now and then, which costs no round trip.
Between two readings the machine's monotonic clock counts on, which nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from psycopg import pq

from feedback.contract.times import moment

SECONDS: Final = "extract(epoch FROM clock_timestamp())::float8"
"""What to select, for `read`."""
_AND_THE_TIME: Final = f"; SELECT {SECONDS}".encode()  # a constant
EVERY: Final = 5.0
"""Seconds between two readings, at least."""


class DatabaseClock:
    """As far as it was read; until then the worker's own."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ahead: float | None = None
        """Seconds by which it is ahead of the monotonic clock."""
        self._read_at = 0.0
        """By the monotonic clock."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time() if self._ahead is None else self._monotonic() + self._ahead

    def now(self) -> datetime:
        """The same as a time."""
        return moment(self.time())

    @property
    def is_old(self) -> bool:
        """Whether the next BEGIN is to ask for the time."""
        return self._ahead is None or self._monotonic() - self._read_at >= EVERY

    def send(self, send: Callable[[bytes], pq.abc.PGresult], statement: bytes) -> None:
        """Sends a statement; with it asks for the time, where the last reading is too old."""
        if not self.is_old:
            send(statement)
            return
        sent = self._monotonic()
        result = send(statement + _AND_THE_TIME)
        self.read(float(result.get_value(0, 0) or 0), sent)

    def read(self, said: float, sent: float) -> None:
        """It said so at some time between `sent`, by time.monotonic(), and now.

        A reading that is in keeping with what is known changes nothing, however long it took; of
        another one the middle is taken, which is wrong by half of that at most.
        """
        self._read_at = self._monotonic()
        least, most = said - self._read_at, said - sent
        if self._ahead is None or not least <= self._ahead <= most:
            self._ahead = (least + most) / 2
