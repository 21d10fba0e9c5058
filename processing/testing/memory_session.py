"""The session of an executor whose journal is in memory, and an outage that never comes.

So the executor that runs in tests is the one that runs in workers, and not an imitation of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import psycopg

from feedback.backend import Backend
from processing.testing.handler_cursor import CursorOfTest
from processing.testing.memory_journal import MemoryJournal
from processing.worker.guarded_cursor import GuardedCursor
from processing.worker.leftovers import end_blocks
from processing.worker.outages import Outages
from processing.worker.session import Session

T = TypeVar("T")


class MemorySession(Session):
    """Transactions of the journal in memory, and with them what a test's own cursor does."""

    def __init__(
        self, journal: MemoryJournal, cursor: CursorOfTest, committing: Callable[[str], None]
    ) -> None:
        """`committing` is told `commit` before one that writes rows, and `committed` after it."""
        super().__init__(
            "", lambda _: None, lock_timeout=0, statement_timeout=0, idle_timeout=0,
            prepare_threshold=None,
        )  # fmt: skip
        self._journal = journal
        self._tx = cursor
        self._committing = committing

    @property
    def lost(self) -> bool:
        return False

    def lost_by_handler(self) -> bool:
        return False

    def connect(self) -> None:
        """There is nothing to connect to."""

    def drop(self) -> None:
        self.rollback()

    def cursor(self) -> psycopg.Cursor[Any]:
        return cast("psycopg.Cursor[Any]", None)  # statements are calls of MemoryWriter

    def handler_cursor(self, kind: str) -> GuardedCursor:
        self.failures.clear()
        return cast("GuardedCursor", self._tx.given(self.failures))

    def take_back(self) -> None:
        end_blocks(self.failures)

    @property
    def in_transaction(self) -> bool:
        return self._tx.healthy

    @property
    def untouched(self) -> bool:
        failures = self.failures
        return failures.last is None and not failures.savepoints and self._tx.healthy

    def ended(self, xid: int) -> bool:
        return False

    def number(self) -> tuple[str, str]:
        return "", ""

    def begin(self) -> None:
        self._journal.begin()
        self._tx.begin()

    @contextlib.contextmanager
    def bounded(self) -> Iterator[None]:
        """What one statement writes and commits at once, as the claim of a call outside."""
        yield

    def wait_at_most(self, seconds: float | None) -> None:
        """Nothing here is locked by others."""

    def try_constraints(self, seconds: float) -> None:
        """None is deferred here, or it is the test's own."""

    def put_back(self) -> None:
        """Nothing here is read as a handler says."""

    def commit(self, end: Callable[[], None] | None = None) -> None:
        written = self._journal.changed
        if written:
            self._committing("commit")
        self._journal.commit()
        self._tx.commit(dead=self._journal.dead)
        if written:
            self._committing("committed")

    def rollback(self) -> None:
        self._journal.rollback()
        self._tx.rollback()

    def savepoint(self) -> int:
        self._tx.savepoint()
        return 1

    def release(self, *, next_in: int | None = None, pipeline: Any = None) -> None:
        self._tx.release()

    def back(self) -> None:
        self._tx.back()

    def unended(self, backends: Sequence[Backend], timeout: float) -> list[Backend]:
        """Nobody else is at work."""
        return []


class MemoryOutages(Outages):
    """A database that is always there."""

    def connect(self) -> None:
        """It is."""

    def survive(self, error: psycopg.Error, *, journals: bool = True) -> bool:
        self._session.rollback()
        return False

    def redo(self, work: Callable[[], T]) -> T:
        return work()

    def outlast(self, work: Callable[[], T], patience: float, *, within: bool = False) -> T:
        return work()
