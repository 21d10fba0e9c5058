"""What tests of the whole service share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from feedback.status.redis_store import RedisStatusStore
from stack import Stack
from tests.support.answering import Answering
from tests.support.outbox import Outbox, new_outbox
from tests.support.service import Bench


@pytest.fixture
def bench(
    request: pytest.FixtureRequest,
    stack: Stack,
    topic: Callable[..., str],
    schema: str,
    prefix: str,
    group: str,
    tmp_path: Path,
) -> Iterator[Bench]:
    """A topic, a schema and a client of the test's own; the module may say how many PARTITIONS."""
    partitions = getattr(request.module, "PARTITIONS", 1)
    made = Bench(stack, topic(partitions=partitions), schema, prefix, group, tmp_path)
    yield made
    made.close()


@pytest.fixture
def answering(stack: Stack, topic: Callable[..., str], prefix: str) -> Iterator[Answering]:
    """A topic of the test's own, and who answers what comes in it."""
    store = RedisStatusStore(stack.redis, prefix, timeout=30.0)
    made = Answering(stack.kafka, topic(partitions=2), store)
    yield made
    made.close()
    store.close()


@pytest.fixture
def outbox_(
    request: pytest.FixtureRequest,
    stack: Stack,
    empty_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Outbox]:
    """An outbox that nobody else uses; the module may say which SENDERS have rows in it."""
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)
    senders = getattr(request.module, "SENDERS", ())
    with new_outbox(stack.database, empty_schema, senders) as made:
        yield made
