from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from feedback.outbox.migrations import migrate
from stack import Stack
from tests.support.outbox import Outbox


@pytest.fixture
def outbox_(stack: Stack, empty_schema: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    """An outbox that nobody else uses, and that add() writes into."""
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)
    with psycopg.connect(stack.database) as connection:
        migrate(connection, empty_schema, ["billing"])
    made = Outbox(stack.database, empty_schema)
    yield made
    made.connection.close()
