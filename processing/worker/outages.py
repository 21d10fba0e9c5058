"""What a worker does about a database that fails: connects again, asks whether it is away for all.

Whether an error says so at all is decided in feedback.journal.database_errors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from typing import TypeVar

import psycopg

from feedback.backoff import Backoff
from feedback.journal.database_errors import (
    Outage,
    is_lock_race,
    is_stale_plan,
    may_pass_within,
    outage_of,
)
from feedback.journal.halving import LOSSES
from feedback.journal.probe import refused_work
from processing.handlers.outcomes import safe_text
from processing.handlers.stopping import STOPPING
from processing.logs import BoundLogger
from processing.worker.session import Session

PATIENCE = 1.0
"""Seconds in which a connection is tried for again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two tries of what is to outlast an outage, or comes back again and again."""
REDO_PAUSE = 0.5
"""Seconds, at most, between two tries of what loses its connection."""
HASTE = 1.0
"""Seconds in which that is tried by a process that may be killed soon."""

T = TypeVar("T")


class DatabaseAway(Exception):
    """The database can't be reached, takes no writes or refuses its journal to this user.

    Nothing that needs it can be done.
    """


class Outages:
    """Stands between the session and whoever has to go on when it fails."""

    def __init__(
        self, session: Session, schema: str, log: BoundLogger, uses: Collection[str] = ()
    ) -> None:
        """`uses`: what of the journal is used here beside what all use."""
        self._session = session
        self._schema = schema
        self._uses = uses
        self._log = log
        self._losses = 0
        """Connections lost since something was committed."""
        self._refusals = 0
        """Chunks that could not be journaled since then, on a connection that stands."""
        self._rests = Backoff(FIRST_PAUSE, LONGEST_PAUSE, random.random)
        self.refused = False
        """The last thing heard is that the server takes no writes, or the journal is of no use."""

    def connect(self) -> None:
        """Connects where that is not so; after a refusal asks whether the journal works again.

        A session that takes none is given up first: what a handler has set for all of it (`SET
        default_transaction_read_only`) says nothing of the server. Raises DatabaseAway.
        """
        end, pauses = time.monotonic() + PATIENCE, Backoff(0.05, 0.5, random.random)
        used, given_up = not self._session.lost, False
        while True:
            try:
                self._session.connect()
                if self.refused and (refused := self._refused_work()) is not None:
                    if not used:
                        raise DatabaseAway(f"the journal refuses work: {safe_text(refused)}")
                    self._session.drop()
                    used, given_up = False, True
                    continue
                break
            except psycopg.Error as error:
                # A new connection may be ended as well, and a server that restarts is soon back.
                if time.monotonic() > end:
                    raise DatabaseAway(safe_text(error)) from error
            time.sleep(pauses.next())
        if given_up:
            self._log.warning("a session took no writes, and a new one does: a handler may have set"
                              " it to read-only, which is to be left alone")  # fmt: skip
        self.refused = False

    def _refused_work(self) -> psycopg.Error | None:
        connection = self._session.connection
        return refused_work(connection, schema=self._schema, uses=self._uses)

    def committed(self) -> None:
        """Something was committed: all is well."""
        self._losses = self._refusals = 0

    def rest(self) -> None:
        """Before a chunk is given back as the database is away: pauses where that is so each time.

        It comes at once where a probe finds all well, as of a column that is gone. Not the first
        time, nor without a connection: to try for one has taken its time.
        """
        if self._session.lost:
            return
        if self._refusals:
            STOPPING.wait(self._rests.after(self._refusals))
        self._refusals += 1

    def survive(self, error: psycopg.Error, *, journals: bool = True) -> bool:
        """Rolls back after an error outside of COMMIT; True where all that was open is done again.

        That is so where the connection was lost, or is of no more use, and there is a new one.
        False where the error is about what was to be done. `journals`: of a statement of the
        journal's own, and no handler's. Raises DatabaseAway.
        """
        session = self._session
        if is_stale_plan(error):
            session.drop()
            self.connect()
            return True
        match outage_of(error, connected=not session.lost, journals=journals):
            case Outage.RECONNECT | Outage.UNCLEAR:
                self._losses += 1
                self._log.warning("database connection lost", error=safe_text(error))
                if self._losses > LOSSES:
                    # It may be what is done there: ask whether it works at all.
                    self._losses, self.refused = 0, True
                self.connect()
                return True
            case Outage.AWAY:
                session.rollback()
                self.refused, before = True, session.backend
                self.connect()
                return session.backend != before  # else it was about the statement
        session.rollback()
        return False

    @staticmethod
    def blame_database(error: BaseException) -> None:
        """Raises DatabaseAway where the server cannot do its work, though a probe finds it can.

        For what only the journal is written with: a disk that was full a moment ago, or a right
        that its user lacks, is no fault of what was to be written.
        """
        if outage_of(error, connected=True, journals=True) is Outage.AWAY:
            raise DatabaseAway(safe_text(error)) from error

    def redo(self, work: Callable[[], T]) -> T:
        """Does what may be done twice, even where its COMMIT may have landed.

        Raises DatabaseAway, what is about the work itself, and what has broken the connection each
        time: the database works, but for this.
        """
        pauses = Backoff(FIRST_PAUSE, REDO_PAUSE, random.random)
        for tries in range(1, LOSSES + 1):
            try:
                return work()
            except psycopg.Error as error:
                if not self.survive(error) or tries == LOSSES:
                    raise
            if tries > 1:
                time.sleep(pauses.next())
        raise AssertionError("the last try returns or raises")

    def outlast(self, work: Callable[[], T], patience: float, *, within: bool = False) -> T:
        """Does what may be done twice until it is done, whatever the database does meanwhile.

        Raises DatabaseAway after `patience` seconds, and what is about the work itself. `within`:
        the transaction that is open stays so, with what was done there before; what has ended it,
        or may come again there each time, is raised as well.
        """
        begun = time.monotonic()
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, random.random)
        while True:
            try:
                if within:
                    self._session.savepoint()
                else:
                    self.connect()
                done = work()
            except (DatabaseAway, psycopg.Error) as error:
                outage = outage_of(error, connected=not self._session.lost, journals=True)
                if not within:
                    self._session.rollback()
                elif self._session.lost or self._session.idle or not may_pass_within(error):
                    raise
                else:
                    self._session.back()
                if stale := is_stale_plan(error):
                    self._session.drop()
                if not (
                    isinstance(error, DatabaseAway | psycopg.errors.QueryCanceled)
                    or is_lock_race(error)
                    or stale
                    or outage is not None
                ):
                    raise
                self.refused |= outage is Outage.AWAY and not within
                longest = min(patience, HASTE) if STOPPING.leaving else patience
                if time.monotonic() - begun > longest:
                    raise DatabaseAway(safe_text(error)) from error
                self._log.warning("the database is waited for", error=safe_text(error))
            else:
                self.committed()
                return done
            time.sleep(pauses.next())
