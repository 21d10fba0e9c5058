"""How much may be polled and committed, and when partitions are paused.

Pure. The bound is on requests and bytes that are committed and not finished; what was polled and
waits for its commit counts too. At the bound intake is full. A pause throws away what the client
has fetched in advance, and after it the first messages take a fifth of a second to come, so at
first nothing is polled for a moment: under a backlog workers make room many times a second. Only
what stays full is paused, until half of the bound is free. Polling goes on while paused, or the
group would take this process for dead.

A partition is paused for itself where what waits of it would fill the bound (`Crowding`): a key
that is slow and hot, or a slow type with a topic of its own, comes faster than it can run, and
would leave workers idle that could run other partitions' requests. So the bound is shared as a
switch shares its memory among ports (dynamic thresholds): of one partition no more may wait than is
left free. One such partition takes half, two take a third each, and as much is left for all others.
What waits for a dead worker's database session to end may stand still for hours: of that it is a
tenth of the bound.
Order per key holds, as a partition stands still as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from consumer.intake.events import Place
from processing.pool.backlog import Backlog

BATCH = 1000
"""Records polled at once, at most."""
HOLD = 0.25
"""Seconds of not polling before partitions are paused."""
GO_ON_AT = 0.9
"""Share of the bound at which polling goes on where nothing was paused."""
RESUME_AT = 0.5
"""Share of the bound at which paused partitions are resumed."""
LOOK_EVERY = 0.25
"""Seconds between two looks at what waits of each partition: they count it."""
LEAST = 0.05
"""Share of the bound that may wait of any partition."""
LONG = 5.0
"""Seconds of work that have to wait of it: what is done sooner keeps the workers busy."""
STANDING = 0.1
"""Share of the bound that may wait of any partition for the end of dead workers' sessions."""
PART_RESUMES_AT = 0.5
"""Share of what is left free at which it is resumed."""
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
    """Bytes. The last record may go beyond: it is in memory already, and if one had to fit, what
    is always in hand could keep a large one, and all that is polled behind it, waiting for ever."""


NO_ROOM = Room(0, 0)


class FlowControl:
    """The gate in front of the pool."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self._full_since: float | None = None
        self._full_long = False
        self._closed: set[Reason] = set()
        self._mean_size = 0.0
        self._crowded = 0.0
        """Share of the bound that partitions have taken which are paused for themselves."""

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

    def share_of_one(self, requests: int, size: int) -> float:
        """The share of the bound that a request takes, with so much in hand."""
        return self._load(requests, size) / requests if requests else 0.0

    def look(self, requests: int, size: int, now: float, crowded: float = 0.0) -> None:
        """Notes how much there is now, waiting for its commit or in hand.

        `crowded`: the share of the bound that partitions have taken which are paused for
        themselves. It stays taken, so only the rest has to become free.
        """
        self._crowded = crowded
        load = self._load(requests, size)
        if self._full_since is None:
            if load >= 1.0:
                self._full_since = now
        elif load <= self._free_enough(RESUME_AT if self._full_long else GO_ON_AT):
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
        full = self._full_since is not None
        if self._closed or (full and self._load(requests, size) > self._free_enough(GO_ON_AT)):
            # A commit takes its time, so it waits for room that is worth one.
            return NO_ROOM
        return Room(self.max_requests - requests, self.max_bytes - size)

    def _free_enough(self, share: float) -> float:
        """The load at which enough is free, where that is `share` of what partitions share."""
        return min(self._crowded + share * (1.0 - self._crowded), 1.0 - 1.0 / self.max_requests)

    def _spent(self, requests: int, size: int) -> bool:
        """Whether all that may come beyond the bound has come."""
        over = max(requests - self.max_requests, (size - self.max_bytes) / max(1, self._mean_size))
        return over >= SPARE

    def _load(self, requests: int, size: int) -> float:
        return max(requests / self.max_requests, size / self.max_bytes)


class Crowding:
    """The partitions that are paused for themselves."""

    def __init__(self) -> None:
        self._shares: dict[Place, float] = {}
        self._look_at = 0.0

    def __contains__(self, place: Place) -> bool:
        """Whether a partition is paused for itself."""
        return place in self._shares

    @property
    def share(self) -> float:
        """The share of the bound that the paused ones have taken."""
        return sum(self._shares.values())

    def due(self, waiting: float, now: float, standing: float = 0.0) -> bool:
        """Whether to look: so much of the bound waits, whatever its partition.

        `standing`: the share that is kept back, nobody knows for how long.
        """
        # Where one partition is above what is left free, half of the bound waits at least.
        much = waiting >= 0.5 or standing > STANDING
        if now < self._look_at or not (self._shares or much):
            return False
        self._look_at = now + LOOK_EVERY
        return True

    def look(
        self, backlogs: Mapping[Place, Backlog], waiting: float, each: float
    ) -> tuple[list[Place], list[Place]]:
        """Partitions to pause, and to resume.

        `backlogs` are those of our partitions, `each` is a request's share of the bound, `waiting`
        the share of all that waits, those from the waiting queue too.
        """
        most, before = max(LEAST, 1.0 - waiting), set(self._shares)
        self._shares.clear()
        for place, backlog in backlogs.items():
            share = backlog.requests * each
            stands, part = backlog.standing * each, PART_RESUMES_AT if place in before else 1.0
            long = share > most * part and backlog.seconds >= LONG
            if long or stands > min(most, STANDING) * part:
                self._shares[place] = share
        return sorted(self._shares.keys() - before), sorted(before - self._shares.keys())

    def revoked(self, places: Iterable[Place]) -> None:
        """Partitions are no longer ours."""
        for place in places:
            self._shares.pop(place, None)
