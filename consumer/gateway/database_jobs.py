"""One job for a database on its way, and the connection that a thread keeps for the next one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors

from consumer.admin.journal import JournalUnreachable
from feedback.postgres import Connection, cut

T = TypeVar("T")
Work = Callable[[Connection], T]

SURE_FOR: Final = 5.0
"""Seconds for which a connection is read from without a look at where it leads."""


class Job:
    """One piece of work on its way."""

    def __init__(self, work: Work[Any], came: float, *, again: bool) -> None:
        self.work = work
        self.came = came
        self.again = again
        self.answer: Future[Any] = Future()
        self.connection: Connection | None = None  # set by its thread while it is at it
        self.given_up = False  # nobody waits for the answer any more

    def take(self, connection: Connection) -> None:
        """From now on that is cut where the job is given up. Raises as check()."""
        self.connection = connection
        self.check()  # after that: who gives it up meanwhile sees the connection, or is seen

    def check(self) -> None:
        """Raises JournalUnreachable where nobody waits for it by now."""
        if self.given_up:
            raise JournalUnreachable("nobody waits for it any more")

    def run(self, connection: Connection) -> Any:
        """What the work returns, unless nobody waits for it by now."""
        self.take(connection)
        return self.work(connection)

    def withdraw(self) -> bool:
        """Takes it back where no thread has begun it; whether that is so. From any thread."""
        return self.answer.cancel()

    def hang_up(self) -> None:
        """Cuts the connection, so that its thread waits no more. From any thread."""
        self.given_up = True
        connection = self.connection
        if connection is not None:
            cut(connection)


class KeptConnection:
    """The connection of one thread, if there is one."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self._sure_until = 0.0

    @property
    def lost(self) -> bool:
        """Whether nothing more can be asked on it, or there is none."""
        if self.connection is None or self.connection.closed:
            return True
        return self.connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def take(self, connection: Connection, now: float) -> Connection:
        """Keeps a new one, and returns it."""
        self.connection, self._sure_until = connection, now + SURE_FOR
        return connection

    def of_use(self, job: Job, now: float) -> bool:
        """Whether it is there, and leads to a server that takes writes.

        It may have been cut, and what may not be done twice has to begin with one that was not. Or
        it leads to the primary of before a failover, which answers for ever and knows nothing new.
        Asked for this job, and no longer than somebody waits for it. Raises JournalUnreachable.
        """
        if self.connection is None:
            return False
        if job.again and now < self._sure_until:
            return True
        job.take(self.connection)
        try:
            refuse_read_only(self.connection)
        except psycopg.Error:
            job.connection = None
            return False
        self._sure_until = now + SURE_FOR
        return True

    def close(self) -> None:
        """Gives it up."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


def refuse_read_only(connection: Connection) -> None:
    """Raises psycopg.Error where its server takes no writes, as a standby, or is gone."""
    row = connection.execute("SHOW transaction_read_only").fetchone()
    if row is not None and row[0] == "on":
        raise errors.ReadOnlySqlTransaction("the server takes no writes: it is read-only")
