"""All that an instance shows at /metrics: told by the other processes, and put together here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from feedback.contract.counts import AnyCounts
from feedback.journal.open_rows import OpenRows
from feedback.metrics.exposition import exposition
from feedback.metrics.families import MetricFamily, by_label, family, one
from feedback.metrics.names import (
    DATABASE_UP,
    HEARTBEAT_AGE,
    INFO,
    JOURNAL_AGE,
    JOURNAL_OLDEST,
    JOURNAL_ROWS,
    READY,
    REDIS_UP,
    STATUS_WRITES_DROPPED,
)
from processing.ipc.frames import Measurements
from processing.logs import get_logger
from processing.maintenance.health import Health
from processing.maintenance.main_metrics import MainMetrics
from processing.maintenance.request_metrics import RequestMetrics

LOOK_EVERY: Final = 15.0
"""Seconds between two looks at the journal."""
ASKED_WITHIN: Final = 120.0
"""Seconds since somebody has scraped; without anybody the journal is left alone."""

log = get_logger("oncepool.maintenance")


class InstanceMetrics:
    """Adds up what it is told. Any thread may tell and ask.

    What workers count goes on from 0 where the maintenance process was started anew; what the main
    process says is its own total.
    """

    def __init__(
        self,
        instance: str,
        health: Health,
        dropped: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """`dropped`: statuses that this process's own sender has dropped."""
        self._instance = instance
        self._version = _version()
        self._health = health
        self._dropped_here = dropped
        self._clock = clock
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._requests = RequestMetrics()
        self._main = MainMetrics()
        self._dropped_by_workers = 0
        self._rows: Sequence[OpenRows] = ()
        """What stood in the journal when it was looked at."""
        self._read: float | None = None
        """When that was."""
        self._given_up = False
        """The last look took too long."""
        self._asked = self._looked = float("-inf")

    def count(self, counts: AnyCounts) -> None:
        """How requests, and messages that are none, ended."""
        with self._lock:
            self._requests.count(counts)

    def measured(self, frame: Measurements) -> None:
        """What workers have reported."""
        with self._lock:
            self._requests.know(frame.types)
            self._requests.measured(frame.durations, frame.chunks)
            self._dropped_by_workers += frame.statuses_dropped

    def heartbeat(self, facts: Mapping[str, Any]) -> None:
        """The main process says this of itself."""
        with self._lock:
            self._requests.know(facts.get("types", ()))

    @property
    def wants_journal(self) -> bool:
        """Somebody scrapes, and the last look at the journal is `LOOK_EVERY` seconds ago."""
        with self._lock:
            now = self._clock()
            return now - self._asked <= ASKED_WITHIN and now - self._looked >= LOOK_EVERY

    def journal(self, rows: Sequence[OpenRows] | None) -> None:
        """What stands in the journal now; None where to look took too long."""
        with self._lock:
            self._looked = self._clock()
            spell, self._given_up = self._given_up, rows is None
            if rows is not None:
                self._rows, self._read = rows, self._looked
        if rows is None and not spell:
            log.warning("a look at the journal for metrics took too long; its figures grow old")

    def text(self) -> bytes:
        """The answer to a scrape."""
        return exposition(self.families())

    def families(self) -> list[MetricFamily]:
        """What is shown now."""
        health, facts = self._health.ready(), self._health.facts
        up = {check.name: float(check.ok) for check in health.checks}
        with self._lock:
            self._asked = self._clock()
            dropped = {"workers": self._dropped_by_workers, "maintenance": self._dropped_here()}
            return [
                family(INFO, {(self._instance, self._version): 1.0}),
                *self._requests.families(),
                *self._main.families(facts),
                by_label(STATUS_WRITES_DROPPED, dropped),
                one(DATABASE_UP, up["database"]),
                one(REDIS_UP, up["redis"]),
                one(READY, float(health.ok)),
                one(HEARTBEAT_AGE, self._health.age),
                *self._of_journal(),
            ]

    def _of_journal(self) -> list[MetricFamily]:
        if self._read is None:  # an age would hide how old the other instances' figures are
            return []
        oldest = {row.what: row.oldest for row in self._rows if row.oldest is not None}
        return [
            by_label(JOURNAL_ROWS, {row.what: float(row.number) for row in self._rows}),
            by_label(JOURNAL_OLDEST, oldest),
            one(JOURNAL_AGE, self._clock() - self._read),
        ]


def _version() -> str:
    try:
        return version("oncepool")
    except PackageNotFoundError:
        return "unknown"
