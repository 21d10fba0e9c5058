"""Rows that answer resends are locked in one order with all that a chunk writes, and once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from feedback.contract.record import Record
from feedback.journal.writer import JournalWriter
from processing import App
from processing.testing import Sandbox
from processing.testing.memory_access import MemoryWriter


class Statements:
    """A cursor that remembers what it was to execute."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def execute(self, statement: str, *_: Any, **__: Any) -> None:
        self.sent.append(statement.lstrip())


def test_they_are_counted_by_one_statement() -> None:
    writer, cursor, place = JournalWriter("s"), Statements(), ("t", 0, 1)
    copies: Mapping[str, Record] = {
        name: (*place, 0, None, b"", [], "pay", None) for name in ("b", "a")
    }
    writer.add_resends(cursor, copies)  # type: ignore[arg-type]
    assert len(cursor.sent) == 1
    assert "UPDATE" in cursor.sent[0]
    writer.add_resends(cursor, {})  # type: ignore[arg-type]
    assert len(cursor.sent) == 1


def test_a_chunk_has_locked_them_before(monkeypatch: pytest.MonkeyPatch) -> None:
    locked, counted = list[str](), list[str]()

    def lock(_: MemoryWriter, _cursor: Any, ids: Iterable[str]) -> None:
        locked.extend(ids)

    add = MemoryWriter.add_resends

    def add_resends(writer: MemoryWriter, cursor: Any, copies: Mapping[str, Record]) -> None:
        counted.extend(copies)
        assert locked == counted
        add(writer, cursor, copies)

    monkeypatch.setattr(MemoryWriter, "lock", lock)
    monkeypatch.setattr(MemoryWriter, "add_resends", add_resends)
    app = App()

    @app.handler("pay")
    def pay(payload: dict[str, Any]) -> None: ...

    with Sandbox(app) as sandbox:
        for name in ("a", "b", "a", "b", "a"):
            sandbox.client.submit("pay", {}, request_id=name)
        sandbox.run()
        rows = sandbox.requests()
    assert sorted((row["id"], row["resends"]) for row in rows) == [("a", 2), ("b", 1)]
    assert len(counted) == 3
