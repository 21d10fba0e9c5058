"""The bare limit writes what Oncepool writes."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import orjson
import psycopg
import pytest
from psycopg import pq

from benchmarks import bare_limit
from feedback.journal.done_rows import HEADER
from feedback.journal.writer import JournalWriter
from feedback.status.redis_commands import status_commands
from processing import App
from processing.worker.calls import DONE
from processing.worker.plain import plain_rows, plain_statuses
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task

NOW = 1_700_000_000.25
KIND = "bench.noop"


def plain_task() -> Task:
    """A request as those of benchmarks/load.py, done."""
    app = App()
    app.handler(KIND)(lambda _payload: None)
    headers: list[tuple[str, bytes | None]] = [("ce_id", b"id-1"), ("ce_type", KIND.encode())]
    record = ("bench", 0, 7, int(NOW * 1000), b"id-1", b'{"amount":5}', headers, KIND, None)
    task = read_task(app, 0, record, Limits(10.0, 1000))
    assert isinstance(task, Task)
    task.end(DONE)
    task.started, task.seconds = NOW, 0.0
    return task


def test_rows_and_statuses_are_those_of_a_plain_end() -> None:
    task, now = plain_task(), int(NOW * 1e6)
    fingerprint = task.fingerprint
    assert fingerprint is not None
    [row], [status] = plain_rows([task]), plain_statuses([task])
    assert bare_limit.row("id-1", KIND, 7, now).replace(bytes(16), fingerprint, 1) == row
    mine = bare_limit.status("id-1", KIND, now)
    fields, theirs = orjson.loads(mine.value), orjson.loads(status.value)
    assert fields.pop("fingerprint") == "00" * 16
    assert theirs.pop("fingerprint") == fingerprint.hex()
    assert fields == theirs
    assert mine.final
    assert status.final


def test_statuses_are_set_many_at_once() -> None:
    writes = [bare_limit.status(f"id-{n}", KIND, 1) for n in range(150)]
    commands = status_commands(writes, b"p:", together=True)
    assert [count for _, count in commands] == [100, 50]


class RecordedCursor:
    """Notes what is sent."""

    def __init__(self, status: pq.ExecStatus = pq.ExecStatus.COMMAND_OK) -> None:
        self.sent: list[str] = []
        self.copied = b""
        self._status = status
        self.connection = SimpleNamespace(pgconn=self)

    def exec_(self, statements: bytes) -> Any:
        self.sent.append(statements.decode())
        return SimpleNamespace(status=self._status, get_error_message=lambda: "refused")

    def execute(self, statement: Any, _params: Any = None, **_options: Any) -> None:
        self.sent.append(str(statement).split("(", maxsplit=1)[0].strip())

    def fetchall(self) -> list[Any]:
        return []

    @contextmanager
    def copy(self, _statement: Any) -> Any:
        self.sent.append("COPY")
        yield SimpleNamespace(
            write=lambda data: setattr(self, "copied", data),
            set_types=lambda _types: None, write_row=lambda _row: None,
        )  # fmt: skip


@pytest.mark.parametrize(
    "handler, between", [("bench.noop", 0), ("bench.insert", 1 + 60 + 3), ("bench.batch", 1)]
)
def test_a_chunk_is_one_transaction(handler: str, between: int) -> None:
    cursor: Any = RecordedCursor()
    ids = [f"id-{n:02d}" for n in range(60)]
    bare_limit.run_chunk(cursor, JournalWriter("s"), handler, ids, 1)
    begin, find, *work, copy, commit = cursor.sent
    assert begin.startswith("BEGIN")
    assert "WHERE id = ANY" in find
    assert len(work) == between
    assert (copy, commit) == ("COPY", "COMMIT")
    assert cursor.copied.startswith(HEADER)
    if handler == "bench.insert":
        assert [one.endswith("; SAVEPOINT oncepool") for one in work if "RELEASE" in one] == [
            True, True, False,
        ]  # fmt: skip


def test_a_refused_statement_ends_it() -> None:
    cursor: Any = RecordedCursor(pq.ExecStatus.FATAL_ERROR)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        bare_limit.send(cursor, b"BEGIN")
