"""The cursor that handlers get: it can do everything but end the worker's transaction.

The statements of one chunk stand or fall together with its journal rows, so COMMIT, ROLLBACK and
their kin are refused before they are sent, whether they come through the cursor or through its
connection; so is libpq's own connection, which asks nobody. What slips through all the same is
found out when the handler has returned (see `Session.ended`), and what is behind it is refused.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import deque
from collections.abc import Collection, Generator, Iterator
from typing import Any, NoReturn

import psycopg
from psycopg import pq, sql
from psycopg.rows import tuple_row

from processing.worker.repeating_cursor import KeptStatement, RepeatingCursor
from processing.worker.savepoint_block import SavepointBlock
from processing.worker.transaction_control import (
    OURS,
    control_of,
    refuse,
    refuse_behind_the_end,
)

_WAYS_ROUND = frozenset(
    {"pgconn", "set_autocommit", "set_isolation_level", "set_read_only", "set_deferrable"}
    | {f"tpc_{step}" for step in ("begin", "prepare", "commit", "rollback", "recover")}
)
"""Attributes of a connection that lead past the guard, or change what the worker relies on."""
_TEXT = pq.Format.TEXT
_MOST_KNOWN = 1000
_LONGEST_KNOWN = 4096
"""Characters. What is longer has its values in it, and is hardly ever met again."""
_known: dict[str, str] = {}
"""Statements that were looked at and are harmless."""
_with_backslash: tuple[dict[str, str], dict[str, str]] = ({}, {})
"""The same of those with a backslash, where it is none of quotes and where it escapes them: a
setting of the session."""
_MOST_NOTED = 100


class AnswersNotAwaited(psycopg.NotSupportedError):
    """A handler that is registered with `pipeline=True` wanted to read a statement's answer."""


def check(query: Any, connection: psycopg.Connection[Any], failures: Failures | None = None) -> Any:
    """The query; raises TransactionControlRefused for one that would end the transaction.

    That it is about savepoints is noted among `failures`.

    Of equal texts always the same object: psycopg keeps what it knows of a statement as long as its
    cursor gets that very object again.
    """
    if isinstance(query, str):
        known = _known.get(query)
        if known is not None:
            return known
    text = _text_of(query, connection)
    harmless, escapes = _known, False
    if "\\" in text:
        escapes = _reads_escapes(connection)
        harmless = _with_backslash[escapes]
    if text in harmless:
        return harmless[text] if text is query else query
    control = control_of(text, escapes=escapes)
    if control.ends:
        refuse(text.strip()[:60])
    if control.by_hand:  # each time
        if failures is not None:
            failures.savepoints += 1
    elif len(harmless) < _MOST_KNOWN and len(text) <= _LONGEST_KNOWN:
        harmless[text] = text
    return query


def _text_of(query: Any, connection: psycopg.Connection[Any]) -> str:
    if isinstance(query, bytes):
        return query.decode("utf-8", "replace")
    return query.as_string(connection) if isinstance(query, sql.Composable) else str(query)


def _reads_escapes(connection: psycopg.Connection[Any]) -> bool:
    """Whether a backslash escapes a quote in every text."""
    return connection.pgconn.parameter_status(b"standard_conforming_strings") == b"off"


class Failures:
    """What went wrong in the database while a handler ran, whatever it made of that."""

    def __init__(self) -> None:
        self._noted: deque[tuple[psycopg.Error, KeptStatement | None]] = deque(maxlen=_MOST_NOTED)
        """The latest ones of the run, with their statements where the server keeps those."""
        self.untold = False
        """Statements of several requests are sent before what came of the first one is known."""
        self.savepoints = 0
        """Statements about savepoints, of which nobody knows whose those are."""
        self.blocks: list[SavepointBlock] = []
        """`transaction()` blocks that are open, the innermost last."""
        self.reading: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()
        """What streams and copies, and holds the connection's lock until it ends. Kept weakly: what
        the handler lets go of ends at once, as psycopg's does."""

    @property
    def last(self) -> psycopg.Error | None:
        """The latest one."""
        return self._noted[-1][0] if self._noted else None

    @property
    def kept(self) -> KeptStatement | None:
        """The statement of `last`, where the server keeps it."""
        return self._noted[-1][1] if self._noted else None

    def clear(self) -> None:
        """Another run begins."""
        self.savepoints = 0
        self._noted.clear()
        self.blocks.clear()

    def note(self, error: psycopg.Error, kept: KeptStatement | None = None) -> None:
        """A statement failed; that a transaction is broken already is no news."""
        if not isinstance(error, psycopg.errors.InFailedSqlTransaction):
            self._noted.append((error, kept))

    def forgive_unless(self, led_to: Collection[BaseException]) -> None:
        """Only what is among these counts, the latest one first; nothing where none is."""
        ids = {id(one) for one in led_to}
        while self._noted and id(self._noted[-1][0]) not in ids:
            self._noted.pop()


class GuardedCursor(RepeatingCursor):
    """A psycopg cursor in the worker's transaction."""

    failures = Failures()
    """Where it notes what failed; the session's own, once it is at work."""

    @property
    def rowcount(self) -> int:
        """As psycopg's."""
        self._refuse_untold()
        return super().rowcount

    @property
    def statusmessage(self) -> str | None:
        """As psycopg's."""
        self._refuse_untold()
        return super().statusmessage

    @property
    def description(self) -> list[psycopg.Column] | None:
        """As psycopg's."""
        self._refuse_untold()
        return super().description

    def results(self) -> Iterator[Any]:
        """As psycopg's."""
        self._refuse_untold()
        return super().results()

    def set_result(self, index: int) -> Any:
        """As psycopg's."""
        self._refuse_untold()
        return super().set_result(index)

    def nextset(self) -> bool | None:
        """As psycopg's."""
        self._refuse_untold()
        return super().nextset()

    def _fetch_pipeline(self) -> None:
        """As psycopg's: before a result is read, in whatever pipeline."""
        self._refuse_untold()
        super()._fetch_pipeline()

    def _refuse_untold(self) -> None:
        """In the worker's own pipeline an answer would be that of the first statement."""
        if self.failures.untold:
            error = AnswersNotAwaited(
                "a handler that reads what its statements return or how many rows they changed is "
                "run a second time where it is registered with pipeline=True; leave that out"
            )
            self.failures.note(error)  # also where the handler makes nothing of it
            raise error

    @property
    def as_made(self) -> bool:
        """Whether it is open, and gives rows and adapts values as a new one does."""
        if self._closed or self._row_factory is not tuple_row or self.format is not _TEXT:
            return False
        return not self._own_loaders and not self._own_dumpers

    def forget(self) -> None:
        """Lets go of the last request's result, and of how many rows it fetched at a time."""
        self._reset()
        self.arraysize = 1

    def execute(self, query: Any, params: Any = None, **options: Any) -> GuardedCursor:
        """As psycopg's; refuses transaction control."""
        refuse_behind_the_end(self._conn)
        try:
            if options or params is None or not self.run_again(query, params):
                super().execute(check(query, self._conn, self.failures), params, **options)
        except psycopg.Error as error:
            self.failures.note(error, self.kept)
            raise
        return self

    def executemany(self, query: Any, *args: Any, **options: Any) -> None:
        """As psycopg's; refuses transaction control."""
        refuse_behind_the_end(self._conn)
        try:
            super().executemany(check(query, self._conn, self.failures), *args, **options)
        except psycopg.Error as error:
            self.failures.note(error, self.kept)
            raise

    def copy(  # type: ignore[override]
        self, statement: Any, *args: Any, **options: Any
    ) -> contextlib.AbstractContextManager[psycopg.Copy]:
        """As psycopg's; refuses transaction control. Ends with the handler at the latest."""
        block = self._copy(statement, *args, **options)
        self.failures.reading.add(block)
        return contextlib.contextmanager(lambda: block)()

    def _copy(
        self, statement: Any, *args: Any, **options: Any
    ) -> Generator[psycopg.Copy, None, None]:
        refuse_behind_the_end(self._conn)
        try:
            with super().copy(
                check(statement, self._conn, self.failures), *args, **options
            ) as copy:
                copy.connection = self.connection
                yield copy
        except psycopg.Error as error:
            self.failures.note(error)
            raise

    def stream(self, query: Any, *args: Any, **options: Any) -> Iterator[Any]:
        """As psycopg's; refuses transaction control. Ends with the handler at the latest."""
        rows = self._stream(query, *args, **options)
        self.failures.reading.add(rows)
        return rows

    def _stream(self, query: Any, *args: Any, **options: Any) -> Generator[Any, None, None]:
        refuse_behind_the_end(self._conn)
        try:
            yield from super().stream(check(query, self._conn, self.failures), *args, **options)
        except psycopg.Error as error:
            self.failures.note(error)
            raise

    @property
    def connection(self) -> Any:
        """The worker's connection, without what would end the transaction.

        psycopg asks its cursors for it too, and gets the real one.
        """
        caller = sys._getframe(1).f_globals  # noqa: SLF001 - nothing else tells who asks
        if caller.get("__name__", "").startswith("psycopg."):
            return self._conn
        return GuardedConnection(self._conn, self.failures)


class GuardedConnection:
    """The worker's connection as a handler may see it. `transaction()` makes savepoints."""

    def __init__(
        self, connection: psycopg.Connection[Any], failures: Failures | None = None
    ) -> None:
        self._connection = connection
        self._failures = Failures() if failures is None else failures

    def cursor(self, **options: Any) -> GuardedCursor:
        """Another cursor in the same transaction."""
        cursor = GuardedCursor(self._connection, **options)
        cursor.failures = self._failures
        return cursor

    def execute(self, query: Any, *args: Any, **options: Any) -> GuardedCursor:
        """Runs a statement on a new cursor."""
        return self.cursor().execute(query, *args, **options)

    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> SavepointBlock:
        """As psycopg's inside of a transaction: a savepoint, which the block's end lets go of."""
        if savepoint_name == OURS:
            refuse(f"connection.transaction({savepoint_name!r})")
        refuse_behind_the_end(self._connection)
        block = self._connection.transaction(savepoint_name, force_rollback)
        return SavepointBlock(block, self._failures.blocks, self)

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """As psycopg's: what went wrong in it may come out at its end alone."""
        try:
            with self._connection.pipeline() as pipeline:
                yield pipeline
        except psycopg.Error as error:
            self._failures.note(error)
            raise

    @property
    def info(self) -> Any:
        """As psycopg's, without libpq's own connection."""
        return GuardedInfo(self._connection.info)

    def commit(self) -> NoReturn:
        """Refused."""
        refuse("connection.commit()")

    def rollback(self) -> NoReturn:
        """Refused."""
        refuse("connection.rollback()")

    def close(self) -> NoReturn:
        """Refused."""
        refuse("connection.close()")

    def __getattr__(self, name: str) -> Any:
        if name in _WAYS_ROUND:
            refuse(f"connection.{name}")
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("_connection", "_failures"):
            refuse(f"connection.{name} = {value!r}")
        super().__setattr__(name, value)


class GuardedInfo:
    """What the connection says of itself."""

    def __init__(self, info: psycopg.ConnectionInfo) -> None:
        self._info = info

    def __getattr__(self, name: str) -> Any:
        if name == "pgconn":
            refuse("connection.info.pgconn")
        return getattr(self._info, name)
