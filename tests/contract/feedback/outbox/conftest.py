from __future__ import annotations

from collections.abc import Iterator

import pytest

from stack import Stack
from tests.support.outbox import Outbox, new_outbox


@pytest.fixture
def outbox_(stack: Stack, empty_schema: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    """An outbox that nobody else uses, and that add() writes into."""
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)
    with new_outbox(stack.database, empty_schema, ["billing"]) as made:
        yield made
