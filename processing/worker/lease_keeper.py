"""Leases of the instance, renewed on a worker's session while nobody else uses that.

The maintenance process does this, unless it can't. A worker can while it waits for its next chunk,
and while it makes a call outside that has no `tx`; not while it has a transaction open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from feedback.journal.claims import renew, renew_calls
from feedback.postgres import cut
from processing.handlers.outcomes import safe_text
from processing.ipc.frames import RenewLeases
from processing.logs import BoundLogger
from processing.settings import ExecutorSettings
from processing.worker.session import Session

BOUNDS: Final = "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '2s'"
"""So long the server takes at most, for each of two statements."""
PATIENCE: Final = 5.0
"""Seconds for which the thread of requests waits for the session. They end only where the server
does not even do that: it is stopped, or far away, and says nothing to whoever asks next either."""


class LeaseKeeper:
    """Asked by the thread that takes frames; the one that runs requests says when it may."""

    def __init__(self, session: Session, settings: ExecutorSettings, log: BoundLogger) -> None:
        self._session, self._settings, self._log = session, settings, log
        self.lease = settings.lease
        """Seconds; of calls outside."""
        self._used = threading.Lock()
        """Whoever has it uses the session: but for `unused` that is the thread of requests."""
        self._used.acquire()
        self._wanted: RenewLeases | None = None

    def want(self, frame: RenewLeases) -> None:
        """These are to be renewed; in place of others that could not be."""
        self._wanted = frame
        self._begin()

    @contextmanager
    def unused(self) -> Iterator[None]:
        """Meanwhile the thread of requests does not use the session."""
        self._used.release()
        try:
            self._begin()
            yield
        finally:
            if not self._used.acquire(timeout=PATIENCE):
                if not self._session.lost:
                    cut(self._session.connection)
                self._used.acquire()

    def _begin(self) -> None:
        """Has renewed what is wanted, unless the session is used: whoever uses it does so later.

        Nobody waits for a database here: neither the thread that takes frames, nor a call.
        """
        if self._wanted is None or not self._used.acquire(blocking=False):
            return
        try:
            # It is given the session: else whoever has it next might be there first each time.
            threading.Thread(target=self._renew, name="leases", daemon=True).start()
        except (RuntimeError, MemoryError):  # no thread may be started: the next one may
            self._used.release()
            self._log.warning("leases not renewed: no thread can be started")

    def _renew(self) -> None:
        """Renews what is wanted, also what is wanted only meanwhile, and lets go of the session."""
        while True:
            try:
                self._try()
            finally:
                self._used.release()
            if self._wanted is None or not self._used.acquire(blocking=False):
                return

    def _try(self) -> None:
        frame, self._wanted = self._wanted, None
        settings = self._settings
        if frame is None or self._session.lost:
            return
        connection = self._session.connection
        if connection.info.transaction_status != TransactionStatus.IDLE:
            return
        try:
            with connection.transaction():
                connection.execute(BOUNDS)
                renew(connection, settings.instance, frame.claims, schema=settings.schema)
                renew_calls(connection, frame.calls, self.lease, schema=settings.schema)
        except psycopg.Error as error:
            self._log.warning("leases not renewed by a worker", error=safe_text(error))
