"""What fails in the database while a handler runs, and what it leaves open there."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection, Generator
from typing import Any, Final

import psycopg

from processing.worker.repeating_cursor import KeptStatement
from processing.worker.savepoint_block import SavepointBlock

_MOST_NOTED: Final = 100


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
