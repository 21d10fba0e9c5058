"""What tests of the journal share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from feedback.journal import claims, queries, releases
from feedback.journal.connections import Connection
from stack import Stack
from tests.support.claiming import ComesBefore, reference
from tests.support.waiting_rows import WaitingRows


@pytest.fixture
def other(stack: Stack) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A second connection."""
    with psycopg.connect(stack.database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def comes_before(rows: WaitingRows, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> ComesBefore:
    """Once, before a statement of those that claim and give back."""
    coming: dict[str, dict[str, Any]] = {}

    def arrange(statement: str, name: str, **more: Any) -> None:
        coming[statement] = {"name": name, "produced_in": -1, **more}

    def execute(connection: Connection, query: str, *rest: Any) -> psycopg.Cursor[Any]:
        if row := coming.pop(query, None):
            writer = WaitingRows(stack.database, rows.schema)
            try:
                writer.query("SET lock_timeout = '20s'")
                reference(writer, row.pop("name"), **row)
            finally:
                writer.close()
        return queries.execute(connection, query, *rest)

    monkeypatch.setattr(claims, "execute", execute)
    monkeypatch.setattr(releases, "execute", execute)
    return arrange
