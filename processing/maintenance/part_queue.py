"""Parts of what an instance will not start, until they are parked. Decisions without I/O.

Those over which the connection is lost come behind the others, rest, and are halved in the end, so
that what breaks it is found and keeps no neighbour waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from feedback.backoff import Backoff
from feedback.journal.halving import LOSSES, LOSSES_TOGETHER
from processing.maintenance.unstarted import UnstartedRecords

_RESTS: Final = Backoff(0.25, 30.0)
"""From the second loss on: the first may be anybody's deed."""


class AfterLoss(NamedTuple):
    """What becomes of a part over which the connection was lost."""

    again: list[UnstartedRecords]
    rest: float = 0.0
    """Seconds until these may be tried again."""


def after_loss(part: UnstartedRecords) -> AfterLoss:
    """Nothing is left to try where it is one record that cannot be parked, and may be refused.

    What may have been parked for its limits may not: if it has no row, nobody would run it.
    """
    part = part._replace(losses=part.losses + 1)
    count = len(part.records)
    if count > 1 and part.losses >= LOSSES_TOGETHER:
        both = [part.only(range(count // 2)), part.only(range(count // 2, count))]
        return AfterLoss([half._replace(losses=0) for half in both])
    if count == 1 and part.losses >= LOSSES and not part.to_be_kept:
        return AfterLoss([])
    return AfterLoss([part], _RESTS.after(part.losses - 1) if part.losses > 1 else 0.0)


class PartQueue:
    """First come, first parked, but for those that rest. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Both are guarded by _lock.
        self._ready: deque[UnstartedRecords] = deque()
        self._resting: list[tuple[float, UnstartedRecords]] = []

    def __bool__(self) -> bool:
        """Whether one may be tried now, as far as is known."""
        return bool(self._ready)

    def pause(self, now: float) -> float | None:
        """Seconds until one may be tried; None where there is none."""
        with self._lock:
            if self._ready:
                return 0.0
            due = min((at for at, _ in self._resting), default=None)
        return None if due is None else max(due - now, 0.0)

    def add(self, parts: Sequence[UnstartedRecords], rest_until: float | None = None) -> None:
        """Behind all others; not before a time where one is given."""
        with self._lock:
            if rest_until is None:
                self._ready.extend(parts)
            else:
                self._resting += [(rest_until, part) for part in parts]

    def put_back(self, parts: Sequence[UnstartedRecords]) -> None:
        """Before all others."""
        with self._lock:
            self._ready.extendleft(reversed(parts))

    def wake(self, now: float | None = None) -> None:
        """Those that have rested until `now` may be tried again, behind the others; None: all."""
        with self._lock:
            up = [part for at, part in self._resting if now is None or at <= now]
            self._resting = [(at, p) for at, p in self._resting if now is not None and at > now]
            self._ready.extend(up)

    def next(self) -> UnstartedRecords | None:
        """Takes the first one that does not rest."""
        with self._lock:
            return self._ready.popleft() if self._ready else None

    def those(self, wanted: Callable[[UnstartedRecords], bool]) -> list[UnstartedRecords]:
        """Those that may be tried and are wanted; they stay."""
        with self._lock:
            return [part for part in self._ready if wanted(part)]

    def take(self, parts: Sequence[UnstartedRecords]) -> None:
        """Takes these out."""
        taken = set(map(id, parts))
        with self._lock:
            self._ready = deque(part for part in self._ready if id(part) not in taken)
