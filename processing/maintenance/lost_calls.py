"""Calls outside that nobody ends any more: their leases ran out, or their workers are gone.

Nobody knows whether they had their effect: they become `in_doubt`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

from feedback.contract.counts import Count
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.housekeeping import (
    SWEEP_AT_ONCE,
    DoubtedCall,
    end_lost_calls,
    in_doubt_records,
    in_doubt_statuses,
    sweep_expired_claims,
)
from feedback.journal.result_outbox import add_results
from processing.ipc.frames import EndCalls
from processing.logs import BoundLogger
from processing.maintenance.dead_backends import LOOK_AGAIN, DeadBackends
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings


class LostCalls:
    """Told by the thread that takes frames; the database thread does it."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        reporting: Reporting,
        log: BoundLogger,
        dead: DeadBackends,
    ) -> None:
        self._dead = dead
        self._schema = settings.schema
        self._results = bool(settings.results_topic)
        self._reporting = reporting
        self._log = log
        self._lock = threading.Lock()
        self._frames: list[EndCalls] = []  # guarded by _lock
        self._held = 0
        """How many of them wait for dead workers' sessions to end."""
        self._look_at = float("-inf")
        """When to look at those again."""
        self.commits = Commits(self._tell)

    def pause(self, now: float) -> float | None:
        """Seconds until something is to be done about calls whose workers are gone; None: none."""
        if not self._frames:
            return None
        return 0.0 if len(self._frames) > self._held else max(self._look_at - now, 0.0)

    def gone(self, frame: EndCalls) -> None:
        """The workers that made these calls are gone."""
        with self._lock:
            self._frames.append(frame)

    # Done by the database thread

    def settle(self, connection: Connection) -> None:
        """Ends the calls of workers that are gone, with their sessions. Raises psycopg.Error."""
        frames = self._frames.copy()
        held = [(frame.backends, frame.codes) for frame in frames]
        stay = self._dead.standing(connection, held, "calls outside to be told in doubt")
        free = [frame for frame in frames if stay.isdisjoint(frame.backends)]
        for frame in free:
            try:
                self._doubt(connection, frame)
            except BaseException:
                with self._lock:  # what fails again and again comes behind the others
                    self._frames.remove(frame)
                    self._frames.append(frame)
                raise
            with self._lock:
                self._frames.remove(frame)
        self._held, self._look_at = len(frames) - len(free), time.monotonic() + LOOK_AGAIN

    def leave_to_leases(self) -> None:
        """Nothing more is settled: says in the log what is left, of which leases run out."""
        if calls := sum(len(frame.codes) for frame in self._frames):
            self._log.warning(
                "calls outside were not told in doubt: any instance does, once their leases have"
                " run out", calls=calls,
            )  # fmt: skip

    def sweep(self, connection: Connection) -> bool:
        """Ends calls whose leases have run out, of any instance; whether there may be more.

        Raises psycopg.Error.
        """
        return self._doubt(connection, None) >= SWEEP_AT_ONCE

    def _doubt(self, connection: Connection, frame: EndCalls | None) -> int:
        """The calls of a frame; None: some whose leases have run out. How many it ended."""
        with self.commits.transaction(connection) as doubted, connection.cursor() as cursor:
            if frame is None:
                found = sweep_expired_claims(connection, schema=self._schema)
            else:
                found = end_lost_calls(connection, frame.codes, frame.blamed, schema=self._schema)
            doubted.extend(found)
            if self._results:
                add_results(cursor, self._schema, in_doubt_records(doubted))
        return len(found)

    def _tell(self, rows: Sequence[DoubtedCall]) -> None:
        for row in rows:
            self._log.warning(
                "a call has no end: in doubt", request_id=row.id, type=row.type, run=row.run,
                why=row.error or row.reason,
            )  # fmt: skip
        self._reporting.publish(in_doubt_statuses(rows, self._reporting.status_ttl))
        self._reporting.count(Counter(Count(row.type, row.state, row.code) for row in rows))
