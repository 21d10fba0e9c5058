"""The worker's connection to the journal's database, and its transactions, spelled out.

The connection is in autocommit mode and BEGIN, savepoints and COMMIT are sent by hand: each is one
round trip at most, and nothing happens behind the executor's back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from feedback.backend import Backend
from feedback.journal.backends import end_backends, end_for_good
from feedback.journal.commits import LIFE, fate_of, number_of
from feedback.journal.connections import open_connection
from feedback.postgres import local_settings, milliseconds
from processing.worker.database_clock import SECONDS, DatabaseClock
from processing.worker.failures import Failures
from processing.worker.gathering_pipeline import GatheringPipeline
from processing.worker.guarded_cursor import GuardedCursor
from processing.worker.leftovers import close_leftovers
from processing.worker.prepared_statements import PreparedStatements
from processing.worker.row_settings import PUT_BACK, PUT_BACK_LOCAL, as_made
from processing.worker.statements import BACK, BEGIN, BOUNDS, MARK, RELEASE, SAVEPOINT, TRY_FOR_GOOD
from processing.worker.transaction_ends import committing, ended_where_missing

IN_TRANSACTION, IDLE = pq.TransactionStatus.INTRANS, pq.TransactionStatus.IDLE
NAME = "oncepool worker"


class Session:
    """One connection; `connect` makes another when it is lost."""

    def __init__(
        self, url: str, connected: Callable[[Backend], None], *, lock_timeout: float,
        statement_timeout: float, idle_timeout: float, prepare_threshold: int | None,
    ) -> None:  # fmt: skip
        """`connected` is told of each new connection before anything is done there.

        Where nothing is prepared, as behind a proxy that pools transactions, time-outs come with
        each BEGIN: those of a session stay with a connection that is somebody else's next.
        """
        self._url = url
        self._connected = connected
        self._prepare_threshold = prepare_threshold
        self._lock_timeout, self._statement_timeout = lock_timeout, statement_timeout
        bounds = dict(zip(BOUNDS, (lock_timeout, statement_timeout, idle_timeout), strict=True))
        self._pooled = pooled = prepare_threshold is None
        self._begin = BEGIN + local_settings(bounds) if pooled else BEGIN
        self._options = ({} if pooled else bounds) | {"client_connection_check_interval": 10.0}
        self._connection: psycopg.Connection[Any] | None = None
        self.backend: Backend | None = None
        """(pid, start) of the server process behind the connection; None without one."""
        self.life = ""
        """Of the server behind the latest connection."""
        self.clock = DatabaseClock()
        """By which it is decided what is due."""
        self.failures = Failures()
        """Of the handler that runs, on its cursors."""
        self.left_open = False
        """The connection was closed for what a handler left open, or at work, there."""
        self.held: Callable[[], bool] = lambda: False
        """Whether something holds the connection, which after a handler's run nothing may. It is
        the lock's own method, as it is asked after each run."""
        self._next_savepoint: int | None = None
        """The transaction's id, where the last `release` has set the next savepoint."""
        self._cursors: dict[str, GuardedCursor] = {}
        """By handler type; they belong to this connection."""

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection. Raises OperationalError where there is none."""
        if self._connection is None:
            raise psycopg.OperationalError("not connected")
        return self._connection

    @property
    def lost(self) -> bool:
        """There is no connection that works."""
        return self._connection is None or self._connection.closed

    def lost_by_handler(self) -> bool:
        """As `lost`; closes a connection that a handler left where nobody else can use it."""
        if not self.lost and self.connection.pgconn.pipeline_status != pq.PipelineStatus.OFF:
            self.connection.close()
            self.left_open = True
        return self.lost

    def take_back(self) -> None:
        """After a run that left something open: nothing is, nor is it `held`, or it is lost."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        if close_leftovers(connection, self.failures):
            self.left_open, self._connection = True, None

    @property
    def broken_by(self) -> psycopg.Error | None:
        """What broke a connection that is lost; None where somebody here closed it."""
        if self._connection is None or not self._connection.broken:
            return None
        said = self.failures.last
        return said or psycopg.OperationalError("the connection broke while a handler ran")

    def connect(self) -> None:
        """Connects where that is not so yet. Raises OperationalError."""
        if not self.lost:
            return
        self.drop()
        connection = open_connection(
            self._url, NAME, timeouts=self._options, prepare_threshold=self._prepare_threshold
        )
        connection._prepared = PreparedStatements()  # noqa: SLF001 - nothing else mends it
        connection.prepare_threshold = self._prepare_threshold
        sent = monotonic()
        row = connection.execute(
            f"SELECT pid, backend_start::text, {LIFE}, {SECONDS}"  # noqa: S608 - constants
            " FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        self._connection, self.left_open = connection, False
        self.held = connection.lock.locked
        if row is not None:
            self.backend, self.life = (row[0], row[1]), row[2]
            self.clock.read(row[3], sent)
            self._connected(self.backend)

    def drop(self) -> None:
        """Closes the connection, whatever state it is in."""
        connection, self._connection, self.backend = self._connection, None, None
        self._cursors.clear()
        self.held = lambda: False
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def cursor(self) -> psycopg.Cursor[Any]:
        """A cursor for the executor itself."""
        return self.connection.cursor()

    def handler_cursor(self, kind: str) -> GuardedCursor:
        """The cursor of one handler: the same for all its requests, since a new one is dear.

        Another one where the handler closed it, or changed what it takes and gives.
        """
        cursor = self._cursors.get(kind)
        if cursor is None or not cursor.as_made:
            cursor = self._cursors[kind] = GuardedCursor(self.connection)
            cursor.failures = self.failures
        else:
            cursor.forget()
        self.failures.clear()
        return cursor

    def forget_cursor(self, kind: str) -> None:
        """A handler failed: what state it left its cursor in nobody knows."""
        self._cursors.pop(kind, None)

    @property
    def in_transaction(self) -> bool:
        """The transaction is open and healthy."""
        return not self.lost and self.connection.pgconn.transaction_status == IN_TRANSACTION

    @property
    def idle(self) -> bool:
        """No transaction is open: each statement is committed by itself."""
        return not self.lost and self.connection.pgconn.transaction_status == IDLE

    @property
    def untouched(self) -> bool:
        """Whether a handler has left all as it was: our transaction is open, and nothing failed.

        Nearly all do. Otherwise the other questions say what it has done.
        """
        failures = self.failures
        if self._connection is None or failures.last is not None or failures.savepoints:
            return False
        pgconn = self._connection.pgconn
        return (
            pgconn.transaction_status == IN_TRANSACTION
            and pgconn.parameter_status(b"application_name") == MARK
            and pgconn.pipeline_status == pq.PipelineStatus.OFF
        )

    def ended(self, xid: int) -> bool:
        """Whether the transaction with this id is over, though another one may have begun."""
        pgconn = self.connection.pgconn
        if pgconn.transaction_status == IDLE:
            return True
        if pgconn.parameter_status(b"application_name") == MARK or not self.in_transaction:
            return False
        # A handler may have changed the name, or a proxy may not tell: ask.
        result = self._send(b"SELECT pg_current_xact_id_if_assigned()")
        return int(result.get_value(0, 0) or 0) != xid

    @property
    def needs_begin(self) -> bool:
        """Whether a BEGIN brings more than a transaction: time-outs, or what time it is."""
        return self._pooled or self.clock.is_old

    def begin(self) -> None:
        """Starts a transaction."""
        self._next_savepoint = None
        self.clock.send(self._send, self._begin)

    @contextlib.contextmanager
    def bounded(self) -> Iterator[None]:
        """Statements outside of a transaction that may wait for locks: time-outs hold for them.

        They are a transaction where time-outs come with its BEGIN alone. Raises as commit().
        """
        if not self._pooled:
            yield
            return
        self.begin()
        try:
            yield
            self.commit()
        except psycopg.Error:
            self.rollback()
            raise

    def wait_at_most(self, seconds: float | None) -> None:
        """So long, or as ever (None), the rest of the transaction waits for a lock."""
        wait = self._lock_timeout
        if seconds is not None:
            wait = min(wait or seconds, seconds)
        self._send(b"SET LOCAL lock_timeout = %d" % milliseconds(wait))

    def try_constraints(self, seconds: float) -> None:
        """Deferred constraints, once and for all, in so many seconds."""
        bounds = milliseconds(seconds), milliseconds(self._statement_timeout)
        self._send(TRY_FOR_GOOD % bounds)

    def put_back(self) -> None:
        """Undoes for the journal's rows what a handler's SET LOCAL said of how they are read."""
        if not as_made(self.connection.pgconn):
            self._send(PUT_BACK_LOCAL)

    def commit(self, end: Callable[[], None] | None = None) -> None:
        """Commits: by COMMIT, or by `end`, where the end of a statement commits what it did.

        Raises CommitUnclear where nobody can say whether it landed, CommitRefused.
        """
        with committing(lambda: not self.lost):
            result = self._send(b"COMMIT") if end is None else end()
        self._put_back_for_good()
        if result is not None and result.command_status != b"COMMIT":
            raise psycopg.errors.InFailedSqlTransaction("COMMIT ended in a rollback")

    def rollback(self) -> None:
        """Rolls back what is open; a connection that cannot do that is dropped."""
        if self.lost:
            return
        try:
            self._send(b"ROLLBACK")
        except psycopg.Error:
            self.drop()
        else:
            self._put_back_for_good()

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[GatheringPipeline]:
        """Meanwhile statements are gathered, and no answer is waited for.

        Leaving it raises the first error among those that nobody was told of.
        """
        self.failures.untold = True
        try:
            with self.connection.pipeline() as pipeline:
                yield GatheringPipeline.entered(pipeline)
        finally:
            self.failures.untold = False

    def savepoint(self) -> int:
        """Sets the segment's savepoint where it does not stand; returns the transaction's id."""
        xid, self._next_savepoint = self._next_savepoint, None
        if xid is None:
            result = self._send(SAVEPOINT + b"; SELECT pg_current_xact_id()")
            xid = int(result.get_value(0, 0) or 0)
        return xid

    def release(
        self, *, next_in: int | None = None, pipeline: GatheringPipeline | None = None
    ) -> None:
        """Tries deferred constraints and lets go of the savepoint.

        With `next_in`, the transaction's id, also sets the next one, which spares a round trip. In
        a pipeline all that comes of it is known at its end; otherwise it raises TransactionEnded
        where the savepoint is no more.
        """
        statements = RELEASE if next_in is None else (*RELEASE, SAVEPOINT)
        if pipeline is not None:
            pipeline.add(statements)
        else:
            with ended_where_missing():
                self._send(b"; ".join(statements))
        self._next_savepoint = next_in

    def back(self) -> None:
        """Undoes what was done since the savepoint. Raises as release()."""
        self._next_savepoint = None
        with ended_where_missing():
            self._send(BACK)

    def number(self) -> tuple[str, str]:
        """The open transaction's id and the life of the server, to ask later what became of it."""
        xid, life = number_of(self.connection)
        return xid or "", life

    def committed(self, xid: int | str, life: str) -> bool | None:
        """Whether a transaction of that life of the server was; None where nobody can say."""
        return fate_of(self.connection, xid, life).landed

    def unended(self, backends: Sequence[Backend], timeout: float) -> list[Backend]:
        """Ends other sessions' server processes; those that have not gone within `timeout` s."""
        return end_backends(self.connection, backends, timeout)

    def end_former(self, backend: Backend | None) -> None:
        """Ends a server process that this session had before, unless it has that one still.

        What was sent there may still be at work, and land. Raises as end_for_good().
        """
        if backend is not None and backend != self.backend:
            end_for_good(self.connection, backend)

    def _put_back_for_good(self) -> None:
        """After a transaction: a handler's SET without LOCAL ends with it, or so does the session.

        Raises nothing, as what was committed stays so.
        """
        if not as_made(self.connection.pgconn):
            try:
                self._send(PUT_BACK)
            except psycopg.Error:
                self.drop()

    def _send(self, statement: bytes) -> pq.abc.PGresult:
        connection = self.connection
        result = connection.pgconn.exec_(statement)
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding="utf-8")
        return result
