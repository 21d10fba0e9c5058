"""Which chunks end by one COPY, and what becomes of one that breaks; no database is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from feedback.contract.record import Record
from feedback.journal.coalescing import Coalescing
from feedback.journal.done_rows import HEADER, TRAILER
from feedback.journal.writer import JournalWriter
from processing import App, Reject
from processing.ipc.frames import Report
from processing.logs import get_logger
from processing.settings import ExecutorSettings
from processing.testing.handler_cursor import CursorOfTest
from processing.testing.memory_journal import MemoryJournal
from processing.testing.memory_session import MemoryOutages, MemorySession
from processing.worker.executor import Executor, JournalAccess
from processing.worker.session import Session
from tests.support.executor import chunk_run

DONE_BY_COPY = ["copy", "rows", "end"]
DONE_BY_TRANSACTION = ["begin", "copy", "rows", "end", "COMMIT"]


class Wire:
    """What is asked of a database that is not there."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.written: list[bytes] = []
        """Rows that were copied."""
        self.breaks_at = ""
        """Where the connection is lost, once."""
        self.lost = self.needs_begin = False

    def ask(self, what: str) -> None:
        self.asked.append(what)
        if what == self.breaks_at:
            self.breaks_at, self.lost = "", True
            raise psycopg.OperationalError("the connection is lost")


class WireSession(MemorySession):
    wire: Wire

    @property
    def lost(self) -> bool:
        return self.wire.lost

    @property
    def needs_begin(self) -> bool:
        return self.wire.needs_begin

    def connect(self) -> None:
        self.wire.lost = False

    def begin(self) -> None:
        self.connect()
        self.wire.ask("begin")

    def commit(self, end: Callable[[], None] | None = None) -> None:
        Session.commit(self, end)

    def _send(self, statement: bytes) -> Any:
        self.wire.ask(statement.decode())
        return _Committed

    def _put_back_for_good(self) -> None:
        """Nothing was set."""


class _Committed:
    command_status = b"COMMIT"


class WireWriter(JournalWriter):
    def __init__(self, wire: Wire) -> None:
        super().__init__("oncepool")
        self.wire = wire

    def find(self, cursor: Any, ids: Sequence[str]) -> dict[str, Any]:
        return {}

    @contextmanager
    def _copying(self) -> Iterator[Any]:
        self.wire.ask("copy")
        yield self
        self.wire.ask("end")

    def copying_done(self, cursor: Any) -> Any:
        return self._copying()

    def write(self, rows: bytes) -> None:
        self.wire.ask("rows")
        self.wire.written.append(rows)

    def insert(self, cursor: Any, rows: Any) -> None:
        """Of those that did not end plainly."""

    def add_attempts(self, cursor: Any, attempts: Any) -> None:
        """They are not asked for."""


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def entered() -> list[Any]:
    return []


@pytest.fixture
def run(wire: Wire, entered: list[Any]) -> Callable[..., Report]:
    app = App()

    @app.handler("render")
    def render(payload: Any) -> None:
        entered.append(payload)
        if payload == "no":
            raise Reject("no")

    app.start_worker()

    def made(*payloads: bytes, told: list[str], **settings: Any) -> Report:
        session = WireSession(MemoryJournal(), CursorOfTest(None), lambda _: None)
        session.wire = wire
        log = get_logger("test")
        access = JournalAccess(
            session, MemoryOutages(session, "oncepool", log), WireWriter(wire), Coalescing("o")
        )
        executor = Executor(
            app=app, database_url="", connected=lambda _: None, log=log, journal=access,
            publish=lambda writes: told.extend(w.id for w in writes),
            settings=ExecutorSettings(**settings),
        )  # fmt: skip
        report = executor.begin(chunk_run([record(n, one) for n, one in enumerate(payloads)]))
        assert report is not None
        return report

    return made


def record(number: int, payload: bytes) -> Record:
    headers: list[tuple[str, bytes | None]] = [("ce_id", b"%d" % number), ("ce_type", b"render")]
    return ("t", 0, number, 1_700_000_000_000, None, payload, headers, "render", None)


def test_rows_of_plain_ends_are_one_statement(run: Callable[..., Report], wire: Wire) -> None:
    told: list[str] = []
    report = run(b"1", b"2", told=told)
    assert wire.asked == DONE_BY_COPY
    assert (report.unclear, report.returned, sorted(told)) == ([], [], ["0", "1"])


def test_with_anything_else_they_are_part_of_a_transaction(
    run: Callable[..., Report], wire: Wire
) -> None:
    told: list[str] = []
    run(b"1", b'"no"', told=told)
    assert wire.asked == DONE_BY_TRANSACTION
    assert sorted(told) == ["0", "1"]


def test_a_begin_that_brings_something_is_sent(run: Callable[..., Report], wire: Wire) -> None:
    wire.needs_begin = True
    run(b"1", told=[])
    assert wire.asked == DONE_BY_TRANSACTION


def test_a_connection_that_is_lost_before_the_copy_loses_nothing(
    run: Callable[..., Report], wire: Wire, entered: list[Any]
) -> None:
    wire.breaks_at, told = "copy", list[str]()
    report = run(b"1", told=told)
    assert wire.asked == ["copy", *DONE_BY_TRANSACTION]
    assert (report.unclear, told, entered) == ([], ["0"], [1])


def test_one_that_is_lost_at_its_end_leaves_all_of_it_unclear(
    run: Callable[..., Report], wire: Wire, entered: list[Any]
) -> None:
    wire.breaks_at, told = "end", list[str]()
    report = run(b"1", b"2", told=told)
    assert wire.asked == DONE_BY_COPY
    assert (sorted(report.unclear), told, entered) == ([0, 1], [], [1, 2])


def test_what_is_copied_is_what_a_transaction_copies(
    run: Callable[..., Report], wire: Wire
) -> None:
    run(b"1", b"2", told=[])
    wire.needs_begin = True
    run(b"1", b"2", told=[])
    assert wire.asked == [*DONE_BY_COPY, *DONE_BY_TRANSACTION]
    at_once, in_transaction = wire.written
    assert rows_of(at_once) == rows_of(in_transaction)


def rows_of(copied: bytes) -> list[bytes]:
    """Two rows of one size, each but for its last 8 bytes, which say when the request ended."""
    assert copied.startswith(HEADER)
    assert copied.endswith(TRAILER)
    rows = copied[len(HEADER) : -len(TRAILER)]
    size = len(rows) // 2
    return [rows[: size - 8], rows[size:-8]]
