"""How much may be polled and committed, and when partitions are paused.

Pure. The bound is on requests and bytes that are committed and not finished; what was polled and
waits for its commit counts too. At the bound intake is full. A pause throws away what the client
has fetched in advance, and after it the first messages take a fifth of a second to come, so at
first nothing is polled for a moment: under a backlog workers make room many times a second. Only
what stays full is paused, until half of the bound is free. Polling goes on while paused, or the
group would take this process for dead.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

BATCH = 1000
"""Records polled at once, at most."""
HOLD = 0.25
"""Seconds of not polling before partitions are paused."""
GO_ON_AT = 0.9
"""Share of the bound at which polling goes on where nothing was paused."""
RESUME_AT = 0.5
"""Share of the bound at which paused partitions are resumed."""
SMOOTHING = 0.2
SPARE = 16
"""Records beyond the bound that may come before partitions are paused at once: the client serves
the answer to a commit only in a poll for a message, so it is polled while intake is full."""


class Reason(StrEnum):
    """Why intake is closed, besides a lack of room."""

    DATABASE = "database"
    WORKERS = "workers"
    DRAINING = "draining"


class Room(NamedTuple):
    """What may still be taken."""

    requests: int
    size: int
    """Bytes."""
    idle: bool
    """Nothing is in hand: one record may be taken however large it is, or it never could."""


NO_ROOM = Room(0, 0, idle=False)


class FlowControl:
    """The gate in front of the pool."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self._full_since: float | None = None
        self._full_long = False
        self._closed: set[Reason] = set()
        self._mean_size = 0.0

    @property
    def paused(self) -> bool:
        """Whether partitions have to be paused: full for some time, or closed for a reason."""
        return self._full_long or bool(self._closed)

    @property
    def holding(self) -> bool:
        """Full for a moment: nothing is to be polled, nothing is paused."""
        return self._full_since is not None and not self.paused

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, for people."""
        return (*sorted(self._closed), *(("full",) if self._full_long else ()))

    def set(self, reason: Reason, *, closed: bool) -> None:
        """Closes or opens intake for a reason of its own."""
        if closed:
            self._closed.add(reason)
        else:
            self._closed.discard(reason)

    def look(self, requests: int, size: int, now: float) -> None:
        """Notes how much there is now, waiting for its commit or in hand."""
        load = self._load(requests, size)
        if self._full_since is None:
            if load >= 1.0:
                self._full_since = now
        elif load <= (RESUME_AT if self._full_long else GO_ON_AT):
            self._full_since = None
        self._full_long = self._full_since is not None and (
            self._full_long or now - self._full_since >= HOLD or self._spent(requests, size)
        )

    def polled(self, requests: int, size: int) -> None:
        """Learns how large records are."""
        mean = size / requests
        # Growth counts at once: the next batch must not be as many of a size that is the past.
        if mean > self._mean_size:
            self._mean_size = mean
        else:
            self._mean_size += SMOOTHING * (mean - self._mean_size)

    def batch(self, requests: int, size: int) -> int:
        """How many records to poll, with so much waiting for its commit or in hand."""
        if self.paused or self.holding:
            return 0
        by_count = self.max_requests - requests
        by_size = (self.max_bytes - size) / self._mean_size if self._mean_size else BATCH
        return max(0, min(BATCH, by_count, max(1, int(by_size))))

    def room(self, requests: int, size: int) -> Room:
        """What may be committed, with so much in hand."""
        if self._closed or (self._full_since is not None and self._load(requests, size) > GO_ON_AT):
            # A commit takes its time, so it waits for room that is worth one.
            return NO_ROOM
        return Room(self.max_requests - requests, self.max_bytes - size, idle=requests == 0)

    def _spent(self, requests: int, size: int) -> bool:
        """Whether all that may come beyond the bound has come."""
        over = max(requests - self.max_requests, (size - self.max_bytes) / max(1, self._mean_size))
        return over >= SPARE

    def _load(self, requests: int, size: int) -> float:
        return max(requests / self.max_requests, size / self.max_bytes)
