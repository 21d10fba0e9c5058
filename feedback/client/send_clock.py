"""When a request is said to be sent: later than all that its client has sent before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from feedback.client import forks
from feedback.contract.ids import time_within

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SET_BACK: Final = 1_000_000
"""Microseconds: a clock that goes back further was set right, and is followed."""


class SendTime(NamedTuple):
    """When a request was first sent; copies keep it."""

    timestamp: int
    """Milliseconds, for its message."""
    exact: datetime | None
    """For `ce_time`, where timestamp and id alone would not say that it came after the others."""


class SendClock:
    """Of requests of one reference the last one submitted has to win.

    Messages have milliseconds, and those of one millisecond are read in any order. So what shares
    one with an earlier request says its time to the microsecond, where its id does not.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._last = 0  # guarded by _lock; microseconds, as consumers read it
        forks.watch(self)

    def forked(self) -> None:
        """In a forked process: a thread that was not copied may have held it."""
        self._lock = threading.Lock()

    def next(self, request_id: str) -> SendTime:
        """The time of a request that is sent now."""
        with self._lock:
            last, micros = self._last, self._now() // 1_000
            if micros <= last < micros + _SET_BACK:
                micros = last + 1
            timestamp = micros // 1_000
            read = int(time_within(timestamp / 1_000, request_id) * 1_000_000)
            # By more than one, as consumers round.
            if read > last + 1 or micros < last:
                self._last = read
                return SendTime(timestamp, None)
            self._last = micros
        return SendTime(timestamp, _EPOCH + timedelta(microseconds=micros))
