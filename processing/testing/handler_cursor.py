"""The cursor of handlers in a sandbox: a real one or a FakeCursor, undone where they fail."""

from __future__ import annotations

import sys
from typing import Any, Final

from processing.testing.fake_cursor import FakeCursor

_OUTER: Final = "oncepool_sandbox"
_INNER: Final = "oncepool"


class CursorOfTest:
    """A connection or a cursor of psycopg, or what a test has in their place.

    A real one is in the test's own transaction, where savepoints stand for the worker's
    transaction: the test may look at what is left, and roll it back.
    """

    def __init__(self, given: Any) -> None:
        self._connection: Any = None
        self._cursor: Any = FakeCursor() if given is None else given
        psycopg = sys.modules.get("psycopg")
        if psycopg is not None and isinstance(given, psycopg.Connection):
            self._connection = given
        elif psycopg is not None and isinstance(given, psycopg.Cursor):
            self._connection = given.connection
        self._marks: list[tuple[int, int]] = []
        self._open = False

    def given(self, failures: Any) -> Any:
        """What a handler gets; of a connection a cursor that refuses COMMIT, as in a worker."""
        if self._connection is None or self._cursor is not self._connection:
            return self._cursor
        from processing.worker.guarded_cursor import GuardedCursor

        cursor = GuardedCursor(self._connection)
        cursor.failures = failures
        return cursor

    @property
    def healthy(self) -> bool:
        """Whether its transaction has not failed."""
        if self._connection is None:
            return True
        status: str = self._connection.info.transaction_status.name
        return status != "INERROR"

    def begin(self) -> None:
        """A worker's transaction begins."""
        self._mark(_OUTER)
        self._open = True

    def commit(self, *, dead: bool) -> None:
        """It is committed, unless the worker is dead."""
        if dead:
            self.rollback()
        elif self._open:
            self._send(f"RELEASE SAVEPOINT {_OUTER}")
            self._marks.clear()
            self._open = False

    def rollback(self) -> None:
        """It is rolled back, if it is open."""
        if self._open:
            del self._marks[1:]
            self._undo(_OUTER)
            self._open = False

    def savepoint(self) -> None:
        """A handler's part of it begins."""
        self._mark(_INNER)

    def release(self) -> None:
        """That stays."""
        self._send(f"RELEASE SAVEPOINT {_INNER}")
        if self._marks:
            self._marks.pop()

    def back(self) -> None:
        """That is undone."""
        self._undo(_INNER)

    def _mark(self, name: str) -> None:
        self._send(f"SAVEPOINT {name}")
        if isinstance(self._cursor, FakeCursor):
            self._marks.append((len(self._cursor.statements), len(self._cursor.copied)))

    def _undo(self, name: str) -> None:
        self._send(f"ROLLBACK TO SAVEPOINT {name}")
        self._send(f"RELEASE SAVEPOINT {name}")
        if isinstance(self._cursor, FakeCursor) and self._marks:
            statements, copied = self._marks.pop()
            del self._cursor.statements[statements:]
            del self._cursor.copied[copied:]

    def _send(self, statement: str) -> None:
        if self._connection is not None:
            self._connection.execute(statement)
