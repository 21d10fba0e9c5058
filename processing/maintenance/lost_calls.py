"""Calls outside that nobody ends any more: their leases ran out, or their workers are gone.

Nobody knows whether they had their effect: they become `in_doubt`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from feedback.contract.counts import Count
from feedback.journal.backends import end_backends
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.housekeeping import (
    DoubtedCall,
    end_lost_calls,
    in_doubt_records,
    in_doubt_statuses,
    sweep_expired_claims,
)
from feedback.journal.result_outbox import add_results
from processing.ipc.frames import EndCalls
from processing.logs import BoundLogger
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings


class LostCalls:
    """Told by the thread that takes frames; the database thread does it."""

    def __init__(
        self, settings: MaintenanceSettings, reporting: Reporting, log: BoundLogger
    ) -> None:
        self._schema = settings.schema
        self._results = bool(settings.results_topic)
        self._reporting = reporting
        self._log = log
        self._lock = threading.Lock()
        self._frames: list[EndCalls] = []  # guarded by _lock
        self.commits = Commits(self._tell)

    @property
    def pending(self) -> bool:
        """Whether there are calls whose workers are gone."""
        return bool(self._frames)

    def gone(self, frame: EndCalls) -> None:
        """The workers that made these calls are gone."""
        with self._lock:
            self._frames.append(frame)

    # Done by the database thread

    def settle(self, connection: Connection) -> None:
        """Ends the calls of workers that are gone. Raises psycopg.Error."""
        while self._frames:
            frame = self._frames[0]
            end_backends(connection, frame.backends)
            self._doubt(connection, frame.codes)
            with self._lock:
                self._frames.remove(frame)

    def sweep(self, connection: Connection) -> None:
        """Ends calls whose leases have run out, of any instance. Raises psycopg.Error."""
        self._doubt(connection, None)

    def _doubt(self, connection: Connection, codes: Mapping[str, str] | None) -> None:
        """`codes` by token; None: of all whose leases have run out."""
        with self.commits.transaction(connection) as doubted, connection.cursor() as cursor:
            if codes is None:
                doubted.extend(sweep_expired_claims(connection, schema=self._schema))
            else:
                doubted.extend(end_lost_calls(connection, codes, schema=self._schema))
            if self._results:
                add_results(cursor, self._schema, in_doubt_records(doubted))

    def _tell(self, rows: Sequence[DoubtedCall]) -> None:
        for row in rows:
            self._log.warning(
                "a call has no end: in doubt", request_id=row.id, type=row.type, run=row.run,
                why=row.error or row.reason,
            )  # fmt: skip
        self._reporting.publish(in_doubt_statuses(rows, self._reporting.status_ttl))
        self._reporting.count(Counter(Count(row.type, row.state, row.code) for row in rows))
