"""Maintenance's connection to the database: made when needed, heard while nothing is asked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from feedback.journal.connections import due_channel, open_connection
from feedback.postgres import cut, listen
from processing.ipc.wakeup import Waker

STATEMENT_TIMEOUT = 10.0


class ListeningConnection:
    """One thread uses it; any thread may wake that thread, or cut the line under it."""

    def __init__(self, url: str, schema: str, instance: str, on_due: Callable[[], None]) -> None:
        """`on_due` is called on the thread that uses the line: NOTIFY says that a row is due."""
        self._url = url
        self._channel = due_channel(schema)
        self._instance = instance
        self._on_due = on_due
        self._waker = Waker()
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._connection: psycopg.Connection[Any] | None = None
        self._busy_since: float | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        with self._lock:
            return self._connection is not None

    @property
    def usable(self) -> bool:
        """Whether there is a connection that has not been found broken."""
        with self._lock:
            return self._connection is not None and not self._connection.closed

    def open(self) -> psycopg.Connection[Any]:
        """The connection; makes one where there is none. Raises psycopg.Error."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = open_connection(
                self._url,
                f"oncepool maintenance {self._instance}",
                timeouts={"statement_timeout": STATEMENT_TIMEOUT},
                made=self._keep,  # so that it can be cut, should the server hang from now on
            )
            # What comes in the answer to a statement is heard like what comes between two.
            connection.add_notify_handler(lambda _: self._on_due())
            listen(connection, self._channel)
        return connection

    def _keep(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            self._connection = connection

    def close(self) -> None:
        """Lets go of the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    # Waiting

    def wake(self) -> None:
        """Ends the wait."""
        self._waker.wake()

    def wait(self, timeout: float | None, *, listening: bool) -> bool:
        """Waits until it is woken, or time is over; True where the server has said something."""
        with self._lock:
            connection = self._connection if listening else None
        return self._waker.wait(None if connection is None else connection.fileno(), timeout)

    def hear(self) -> None:
        """Takes what the server says unasked. Raises psycopg.Error at the connection's end."""
        connection = self.open().pgconn
        connection.consume_input()
        while connection.notifies() is not None:
            self._on_due()

    # A server that hangs

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While statements run: they must not take too long."""
        with self._lock:
            self._busy_since = time.monotonic()
        try:
            yield
        finally:
            self.take_your_time()

    def take_your_time(self) -> None:
        """What runs now may take as long as it does."""
        with self._lock:
            self._busy_since = None

    def cut(self, hung_after: float) -> bool:
        """Ends the connection under statements that take longer than that; True where it did.

        The server's own statement_timeout is shorter: a server that does not even answer with that
        is stopped, or its machine is gone.
        """
        with self._lock:
            since, connection = self._busy_since, self._connection
        if since is None or connection is None or time.monotonic() - since < hung_after:
            return False
        cut(connection)
        return True
