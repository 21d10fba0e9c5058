"""Rows of the journal as tests want them, and connections that race each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from feedback.journal.connections import open_connection
from tests.support.waiting import eventually

T = TypeVar("T")

DEFAULTS: dict[str, Any] = {
    "type": "payment.create", "state": "dead", "code": "handler_error", "attempt": 3, "run": 3,
    "used": 3, "crashes": 1, "effect": "transaction", "error": "ValueError: boom",
    "payload": b'{"n": 1}', "headers": "[]", "topic": "requests", "partition": 0,
    "kafka_offset": 7, "produced_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


class Journal:
    """One schema of one database, through a connection in autocommit mode."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.connection = open_connection(url, "oncepool tests", timeouts={"lock_timeout": 20.0})

    def put(self, id: str, state: str = "dead", **columns: Any) -> str:
        """Writes a row of `requests`; finished now, unless it waits or runs.

        One that ended at a given time was made then, too.
        """
        row = {**DEFAULTS, "id": id, "state": state, **columns}
        if "finished_at" in row:
            row.setdefault("created_at", row["finished_at"])
        if state not in ("waiting", "running"):
            row.setdefault("finished_at", "now")
        self.insert("requests", **row)
        return id

    def insert(self, table: str, **row: Any) -> None:
        """Writes one row."""
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(self.schema, table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(sql.Placeholder() * len(row)),
        )
        self.connection.execute(statement, list(row.values()))

    def get(self, id: str) -> dict[str, Any]:
        """A row of `requests`."""
        (row,) = self.rows("SELECT * FROM {s}.requests WHERE id = %s", id)
        return row

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """What a query finds; `{s}` stands for the schema."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self._text(statement), values).fetchall()

    def run(self, statement: str, *values: Any) -> int:
        """Executes a statement; how many rows it touched."""
        return self.connection.execute(self._text(statement), values).rowcount

    @contextmanager
    def holding(self, statement: str, *values: Any) -> Iterator[psycopg.Connection[Any]]:
        """Another connection that has executed `statement` and not committed; commits at the end.

        A body that starts a Rival first sees it wait for this one.
        """
        with psycopg.connect(self.url) as other:
            other.execute(self._text(statement), values)
            yield other

    def rival(
        self, work: Callable[[psycopg.Connection[Any]], T], backend: int | None = None
    ) -> Rival[T]:
        """`work` on a connection of its own, in a thread, once it waits for somebody's lock.

        `backend` is the server process that waits, where the work has another connection.
        """
        rival = Rival(self.url, work, backend)
        eventually(lambda: rival.done or self._waits(rival.pid), message="the rival never waited")
        assert not rival.done, "the rival did not meet the lock"
        return rival

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()

    def _waits(self, pid: int) -> bool:
        query = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        row = self.connection.execute(query, [pid]).fetchone()
        return bool(row and row[0])

    def _text(self, statement: str) -> bytes:
        schema = sql.Identifier(self.schema).as_string(self.connection)
        return statement.replace("{s}", schema).encode()


class Rival(Generic[T]):
    """Work that goes on in a thread, with a connection of its own."""

    def __init__(
        self, url: str, work: Callable[[psycopg.Connection[Any]], T], backend: int | None = None
    ) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self.pid = backend or self._connection.info.backend_pid
        self._work = work
        self._answer: list[T] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def result(self, timeout: float = 60.0) -> T:
        """What it returned; raises what it raised."""
        self._thread.join(timeout)
        assert self.done, "the rival still waits"
        if self._error:
            raise self._error[0]
        return self._answer[0]

    def _run(self) -> None:
        try:
            self._answer.append(self._work(self._connection))
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._error.append(error)
        finally:
            self._connection.close()
