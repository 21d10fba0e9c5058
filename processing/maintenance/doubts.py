"""Takes requests in doubt to the main process when it is time to ask their checks."""

from __future__ import annotations

import threading

from feedback.contract.record import Record
from feedback.journal.claimed_rows import DoubtfulRow, record_of
from feedback.journal.connections import Connection
from feedback.journal.doubts import doubts_to_ask
from processing.ipc.frames import ASK, NO_ORDER, DueRows, WantDoubts
from processing.logs import BoundLogger
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings


class Doubts:
    """Told by the thread that takes frames; the database thread does it."""

    def __init__(
        self, settings: MaintenanceSettings, reporting: Reporting, log: BoundLogger
    ) -> None:
        self._schema, self._after = settings.schema, settings.check_after
        self._reporting, self._log = reporting, log
        self._lock = threading.Lock()
        self._wanted: WantDoubts | None = None  # guarded by _lock

    def want(self, frame: WantDoubts) -> None:
        """The main process has room for some."""
        with self._lock:
            self._wanted = frame

    # Done by the database thread

    def pause(self, _now: float) -> float | None:
        """0 where some are wanted, else None."""
        return None if self._wanted is None else 0.0

    def take(self, connection: Connection) -> None:
        """Takes those whose time has come. Raises psycopg.Error."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        found = doubts_to_ask(connection, *wanted, self._after, schema=self._schema)
        records = [record for row in found if (record := self._record(row)) is not None]
        if records:
            self._reporting.tell(DueRows(NO_ORDER, [(record, ASK) for record in records]))

    def _record(self, row: DoubtfulRow) -> Record | None:
        try:
            return record_of(row, NO_ORDER)
        except Exception as error:  # noqa: BLE001 - of another version, or written by hand
            self._log.warning(
                "a request in doubt can't be asked about: its row holds no request",
                request_id=row.id, type=row.type, error=f"{type(error).__name__}: {error}",
            )  # fmt: skip
            return None
