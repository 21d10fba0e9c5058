"""Who waits until so much is done, without taking much of the CPU that is measured."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.full_path_runs import LONGEST, POLL, RunNames
from benchmarks.tally import counted

MOST = 0.5
"""Seconds between two looks, at most: they become longer, as a look costs the more the more is
there."""


class ProgressWatch(ABC):
    """Looks how much is done."""

    own: frozenset[int] = frozenset()
    """Processes of PostgreSQL's that work for it."""

    @abstractmethod
    def done(self) -> int:
        """Requests, so far."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of what it looks with."""

    def until(self, requests: int, started: Sequence[subprocess.Popen[bytes]]) -> int:
        """Waits for so many, and returns how many are done.

        Raises RuntimeError where a process ends before, or it takes longer than LONGEST.
        """
        end = time.monotonic() + LONGEST
        pause = POLL
        while True:
            over = any(p.poll() is not None for p in started)  # one that ends may have done all
            found = self.done()
            if found >= requests:
                return found
            if over or time.monotonic() > end:
                raise RuntimeError(f"{requests} were not done; {found} were")
            time.sleep(pause)
            pause = min(pause * 1.5, MOST)


class TallyWatch(ProgressWatch):
    """Of handlers that count."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def done(self) -> int:
        return counted(self._folder).requests

    def close(self) -> None:
        """Nothing is open."""


class RowsWatch(ProgressWatch):
    """Of a table with a row for each that is done."""

    def __init__(self, where: RunNames, table: str) -> None:
        self._query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(where.schema, table))
        self._connection = psycopg.connect(where.stack.database, autocommit=True)
        # Else others than its own process would count for it.
        self._connection.execute("SET max_parallel_workers_per_gather = 0")
        self.own = frozenset((self._connection.info.backend_pid,))

    def done(self) -> int:
        try:
            row = self._connection.execute(self._query).fetchone()
        except psycopg.errors.UndefinedTable:  # one that its side makes
            return 0
        return row[0] if row else 0

    def close(self) -> None:
        self._connection.close()
