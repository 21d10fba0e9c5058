"""Counts per minute, type, state and code, on their way to the journal's counter table."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from feedback.contract.counts import AnyCounts
from feedback.contract.headers import MAX_NAME
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.housekeeping import CountKey, add_counters
from processing.logs import BoundLogger

Counts: TypeAlias = dict[CountKey, int]

OTHER = "other"
MOST_NAMES = 1000
"""Types counted by name: a flood of made-up types must not fill memory or the table."""
MOST_KEYS = 50_000


class Counters:
    """Adds up what the main process reports until it is written. For any threads."""

    def __init__(self) -> None:
        self.commits = Commits(lost=self._restore_all)
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._counts: Counts = {}
        self._names: set[str] = set()
        self.lost = 0
        """Counts given up because the database was away for too long."""

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, counts: AnyCounts, now: float) -> None:
        """Counts of now, epoch seconds."""
        minute = int(now) // 60 * 60
        with self._lock:
            for (kind, state, code), n in counts.items():
                key = (minute, self._known(_safe(kind)), str(state), _safe(code))
                if key in self._counts or len(self._counts) < MOST_KEYS:
                    self._counts[key] = self._counts.get(key, 0) + n
                else:
                    self.lost += n

    def take(self) -> Counts:
        """Everything that is not written yet; `restore` gives it back."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts

    def restore(self, counts: Mapping[CountKey, int]) -> None:
        """Takes back what could not be written."""
        with self._lock:
            for key, n in counts.items():
                self._counts[key] = self._counts.get(key, 0) + n

    def write(self, connection: Connection, schema: str, log: BoundLogger) -> None:
        """Writes everything that is not written yet. Raises psycopg.Error.

        What is known not to have landed is still here then; of the rest `commits` finds out.
        """
        counts = self.take()
        for key, error in add_counters(connection, counts, schema=schema, commits=self.commits):
            log.error("a count could not be written", count=key, n=counts[key], why=str(error))

    def _restore_all(self, added: Sequence[Mapping[CountKey, int]]) -> None:
        for counts in added:
            self.restore(counts)

    def _known(self, kind: str) -> str:
        if kind not in self._names:
            if len(self._names) >= MOST_NAMES:
                return OTHER
            self._names.add(kind)
        return kind


def _safe(text: str) -> str:
    """As the database takes it: what a message says of its type may be anything."""
    return text[:MAX_NAME].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
