"""Makes requests of what the app has come by the clock, beside all other instances that have it.

When to look is decided here; what is due, and whose it is, in the journal.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from feedback.contract.counts import Count, NotRun
from feedback.contract.schedule import Schedule
from feedback.contract.states import SCHEDULED, DeadLetterReason, State
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.schedules import TicksMade, make_ticks, tick_status
from feedback.status.status import StatusWrite
from processing.ipc.frames import ScheduleFields
from processing.logs import BoundLogger
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings

LOOK_EVERY: Final = 10.0
"""Seconds between two looks at most: operators resume, clocks are set, other versions go."""
SOON: Final = 0.5
"""Seconds until what another instance is just about is looked at again."""
BREAK: Final = 2 * LOOK_EVERY
"""Seconds between two looks that are a break: the database was away, or this process stood still,
and so may those who look after a schedule."""


class TickTiming:
    """When to look at the schedules. Pure: the clock comes with each call."""

    def __init__(self) -> None:
        self._next: float | None = None
        self._looked: float | None = None
        self._since = 0.0

    def declared(self, now: float, *, any_: bool) -> None:
        """There are other schedules than before; `any_`: there are some."""
        self._next = now if any_ else None

    def watched(self, now: float) -> float:
        """A look begins: seconds for which there have been some without a break."""
        if self._looked is None or now - self._looked > BREAK:
            self._since = now
        return now - self._since

    def looked(self, made: TicksMade, now: float) -> None:
        """A look is over, and nothing has hindered it."""
        self._looked = now
        pause = LOOK_EVERY if made.again_in is None else min(made.again_in, LOOK_EVERY)
        self._next = now + (SOON if made.busy else pause)

    def pause(self, now: float) -> float | None:
        """Seconds until the next look; None where there is nothing to look after."""
        return None if self._next is None else max(0.0, self._next - now)


class Ticking:
    """Told by the thread that takes frames; the database thread does the work."""

    def __init__(
        self, settings: MaintenanceSettings, reporting: Reporting, log: BoundLogger
    ) -> None:
        self._schema = settings.schema
        self._reporting = reporting
        self._log = log
        self.commits = Commits(self._tell)
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._schedules: list[Schedule] = []
        self._timing = TickTiming()

    def declare(self, schedules: Sequence[ScheduleFields]) -> None:
        """What the app has come by the clock, in place of what it was said to have before."""
        with self._lock:
            self._schedules = [Schedule(*fields) for fields in schedules]
            self._timing.declared(time.monotonic(), any_=bool(schedules))

    def pause(self, now: float) -> float | None:
        """Seconds until something is to be done; None where the app has no schedules."""
        with self._lock:
            return self._timing.pause(now)

    def make(self, connection: Connection) -> None:
        """Makes what is due. Raises psycopg.Error; then it is tried again as if nothing was."""
        with self._lock:
            schedules = self._schedules
            watched = self._timing.watched(time.monotonic())
        made = make_ticks(
            connection, schedules, schema=self._schema, watched=watched, commits=self.commits
        )
        with self._lock:
            if schedules is self._schedules:
                self._timing.looked(made, time.monotonic())

    def _tell(self, looks: Sequence[TicksMade]) -> None:
        for made in looks:
            self._tell_of(made)

    def _tell_of(self, made: TicksMade) -> None:
        now, ttl = datetime.now(UTC), self._reporting.status_ttl
        self._reporting.publish(
            [StatusWrite.of(tick_status(tick, now), ttl=ttl) for tick in made.ticks]
        )
        self._reporting.count(
            Counter(Count(tick.type, State.WAITING, SCHEDULED) for tick in made.ticks)
        )
        for tick in made.taken:
            self._log.error(
                "a schedule's tick does not run: its id belongs to another request",
                id=tick.id, type=tick.type,
            )  # fmt: skip
        self._reporting.count(
            Counter(
                Count(tick.type, NotRun.DEAD_LETTER, DeadLetterReason.CONFLICT)
                for tick in made.taken
            )
        )
        for name, skipped in made.skipped.items():
            self._log.warning(
                "ticks of a schedule were skipped: no instance was there in time",
                schedule=name, skipped=skipped,
            )  # fmt: skip
