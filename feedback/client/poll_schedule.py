"""Which statuses to read next, and when. A decision without I/O: events and a clock in, ids out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

SLICE: Final = 500  # ids read at once
SHORTEST: Final = 0.002  # seconds between two sweeps
LONGEST: Final = 1.0
REST: Final = 9  # seconds of rest for each second of reading
PATIENCE: Final = 0.02  # how late a sweep may be, as a part of the age of the youngest wait


class PollSchedule:
    """The ids that are waited for. Those of new waits and of hints are read at once.

    Besides, sweeps read them all, in slices: at most a tenth of the time, and the less often the
    longer nothing new is waited for. Both take turns, so that neither holds up the other.
    """

    def __init__(self) -> None:
        self._waits: dict[str, None] = {}  # the ids that are waited for
        self._urgent: dict[str, None] = {}  # in order
        self._round: list[str] = []  # what the present sweep has still to read
        self._seconds = 0.0  # spent reading in the present sweep
        self._due = 0.0  # when the next sweep begins
        self._rested = 0.0  # when it may begin at the earliest, for a tenth of the time
        self._newest = 0.0  # when the youngest wait began
        self._sweeping = False  # what was taken last belongs to a sweep

    def started(self, id: str, now: float) -> None:
        """A wait began."""
        self._waits[id] = None
        self._urgent[id] = None
        self._newest = now
        self._due = min(self._due, max(now + SHORTEST, self._rested))

    def ended(self, id: str) -> None:
        """The last wait for it ended."""
        self._waits.pop(id, None)
        self._urgent.pop(id, None)

    def hinted(self, ids: Iterable[str]) -> None:
        """Something was written for these ids; only some of them may be waited for."""
        for name in ids:
            if name in self._waits:
                self._urgent[name] = None

    def missed_hints(self) -> None:
        """Hints may have been missed: sweep now."""
        self._due = 0.0

    def take(self, now: float) -> list[str]:
        """The ids to read now; done() or failed() must follow. Empty when there is nothing."""
        if self._sweeping and self._urgent:
            self._sweeping = False
            return self._take_urgent()
        ids = self._take_of_sweep(now)
        self._sweeping = bool(ids)
        return ids or self._take_urgent()

    def pause(self, now: float) -> float | None:
        """Seconds until there may be something to take; None when no wait is there."""
        if not self._waits:
            return None
        return 0.0 if self._urgent or self._round else max(0.0, self._due - now)

    def done(self, now: float, seconds: float) -> None:
        """What was taken has been read, which took `seconds`."""
        if not self._sweeping:
            return
        self._seconds += seconds
        if not self._round:
            self._rested = now + min(max(self._seconds * REST, SHORTEST), LONGEST)
            patience = min((now - self._newest) * PATIENCE, LONGEST)
            self._due = max(self._rested, now + patience)

    def failed(self) -> None:
        """What was taken could not be read: a new sweep begins with the next take."""
        self._round = []
        self._due = 0.0

    def _take_urgent(self) -> list[str]:
        ids = list(islice(self._urgent, SLICE))
        for name in ids:
            del self._urgent[name]
        return ids

    def _take_of_sweep(self, now: float) -> list[str]:
        ids: list[str] = []
        # What is left of a sweep may have ended meanwhile: then the next one may be due already.
        while not ids and (self._round or now >= self._due) and self._waits:
            if not self._round:
                self._round = list(self._waits)
                self._seconds = 0.0
            taken, self._round = self._round[:SLICE], self._round[SLICE:]
            ids = [name for name in taken if name in self._waits]
        for name in ids:
            self._urgent.pop(name, None)
        return ids
