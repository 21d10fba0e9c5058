"""An executor whose requests may wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from stack import Stack
from tests.support.moves import forbidden_moves, watch_moves
from tests.support.queue import INSTANCE, Queue, queue_app


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def queue(
    stack: Stack, schema: str, answers: dict[str, Any], ran: list[Any]
) -> Iterator[Queue]:  # fmt: skip
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text)".encode())
    watch_moves(stack.database, schema)
    made = Queue(queue_app(schema, answers, ran), stack.database, schema, instance=INSTANCE)
    yield made
    made.executor.close()
    made.app.stop_worker()
    assert forbidden_moves(stack.database, schema) == []
