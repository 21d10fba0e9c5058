"""The cursor that handlers get: it can do everything but end the worker's transaction.

The statements of one chunk stand or fall together with its journal rows, so COMMIT, ROLLBACK and
their kin are refused before they are sent, whether they come through the cursor or through its
connection; so is libpq's own connection, which asks nobody. What slips through all the same is
found out when the handler has returned (see `Session.ended`), and what is behind it is refused.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from typing import Any, NoReturn

import psycopg
from psycopg import pq, sql
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from processing.worker.failures import Failures
from processing.worker.repeating_cursor import RepeatingCursor
from processing.worker.savepoint_block import SavepointBlock
from processing.worker.transaction_control import (
    OURS,
    control_of,
    refuse,
    refuse_behind_the_end,
    refuse_change,
    refuse_way_round,
)

_TWO_PHASES = frozenset(
    f"tpc_{step}" for step in ("begin", "prepare", "commit", "rollback", "recover")
)
"""Attributes of a connection that end its transaction."""
_CHANGES = frozenset(
    {f"set_{what}" for what in ("autocommit", "isolation_level", "read_only", "deferrable")}
    | {f"{act}_{what}_handler" for act in ("add", "remove") for what in ("notice", "notify")}
)
"""Attributes of a connection that change it."""
_OTHERWISE = {
    "row_factory": "use tx.connection.cursor(row_factory=...)",
    "register": "register with tx.adapters, or with those of a tx.connection.cursor()",
}
_TEXT = pq.Format.TEXT
_MOST_KNOWN = 1000
_LONGEST_KNOWN = 4096
"""Characters. What is longer has its values in it, and is hardly ever met again."""
_known: dict[str, str] = {}
"""Statements that were looked at and are harmless."""
_with_backslash: tuple[dict[str, str], dict[str, str]] = ({}, {})
"""The same of those with a backslash, where it is none of quotes and where it escapes them: a
setting of the session."""


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
        if _psycopg_asks():
            return self._conn
        return GuardedConnection(self._conn, self.failures)


def _psycopg_asks() -> bool:
    caller = sys._getframe(2).f_globals  # noqa: SLF001 - nothing else tells who asks
    return str(caller.get("__name__", "")).startswith("psycopg.")


class _FixedAdapters(AdaptersMap):
    """The connection's, of which none can be registered anew."""

    def register_dumper(self, *_: Any) -> NoReturn:
        """Refused."""
        refuse_change("connection.adapters.register_dumper()", _OTHERWISE["register"])

    def register_loader(self, *_: Any) -> NoReturn:
        """Refused."""
        refuse_change("connection.adapters.register_loader()", _OTHERWISE["register"])


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

    @property
    def adapters(self) -> AdaptersMap:
        """As psycopg's, to be read only."""
        return _FixedAdapters(self._connection.adapters)

    @property
    def connection(self) -> Any:
        """Itself, as psycopg's; psycopg gets the real one."""
        return self._connection if _psycopg_asks() else self

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
        if name == "pgconn":
            refuse_way_round("connection.pgconn")
        if name in _TWO_PHASES:
            refuse(f"connection.{name}")
        if name in _CHANGES:
            refuse_change(f"connection.{name}()", "leave it out")
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("_connection", "_failures"):
            instead = _OTHERWISE.get(name, "leave it out")
            refuse_change(f"connection.{name} = {value!r}", instead)
        super().__setattr__(name, value)


class GuardedInfo:
    """What the connection says of itself."""

    def __init__(self, info: psycopg.ConnectionInfo) -> None:
        self._info = info

    def __getattr__(self, name: str) -> Any:
        if name == "pgconn":
            refuse_way_round("connection.info.pgconn")
        return getattr(self._info, name)
