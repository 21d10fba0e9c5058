"""A cursor for tests of handlers that need no database."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Row = Any


class FakeCursor:
    """Answers each statement that returns rows from a script, and keeps what was executed.

    `FakeCursor([("book", 1200)], [])`: the first fetching statement finds one row, the second
    none. A statement is taken to fetch when rows are asked for after it. `rowcounts` are what
    `rowcount` says after each statement. `statements` holds (SQL, parameters), `copied` the rows
    given to COPY.
    """

    def __init__(self, *answers: Sequence[Row], rowcounts: Iterable[int] = ()) -> None:
        self.statements: list[tuple[str, Any]] = []
        self.copied: list[Sequence[Any]] = []
        self.rowcount = -1
        self._answers = deque(answers)
        self._rowcounts = deque(rowcounts)
        self._rows: deque[Row] | None = None  # None = nothing was asked for yet

    def execute(self, query: Any, params: Any = None, **_: Any) -> FakeCursor:
        """Keep a statement."""
        self.statements.append((_text(query), params))
        self._rows = None
        self.rowcount = self._rowcounts.popleft() if self._rowcounts else -1
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **_: Any) -> None:
        """Keep one statement for each set of parameters."""
        for params in params_seq:
            self.execute(query, params)

    def fetchone(self) -> Row | None:
        """The next row of this statement's answer."""
        rows = self._answer()
        return rows.popleft() if rows else None

    def fetchmany(self, size: int = 1) -> list[Row]:
        """At most `size` further rows."""
        rows = self._answer()
        return [rows.popleft() for _ in range(min(size, len(rows)))]

    def fetchall(self) -> list[Row]:
        """All further rows."""
        rows = self._answer()
        self._rows = deque()
        return list(rows)

    def __iter__(self) -> Iterator[Row]:
        yield from self.fetchall()

    @contextlib.contextmanager
    def copy(self, statement: Any, params: Any = None) -> Iterator[FakeCopy]:
        """COPY ... FROM STDIN: keeps the rows."""
        self.execute(statement, params)
        yield FakeCopy(self.copied)

    def _answer(self) -> deque[Row]:
        if self._rows is None:
            if not self._answers:
                last = self.statements[-1][0] if self.statements else "no statement"
                raise AssertionError(
                    f"rows were asked for after {last!r}, and the script of this FakeCursor has no "
                    "answer left: give it one more list of rows"
                )
            self._rows = deque(self._answers.popleft())
            self.rowcount = len(self._rows)
        return self._rows


class FakeCopy:
    """What FakeCursor.copy gives."""

    def __init__(self, rows: list[Sequence[Any]]) -> None:
        self._rows = rows

    def set_types(self, types: Sequence[Any]) -> None:
        """Takes types as psycopg does, and needs none."""

    def write_row(self, row: Sequence[Any]) -> None:
        """Keep a row."""
        self._rows.append(row)


def _text(query: Any) -> str:
    return query.decode() if isinstance(query, bytes) else str(query)
