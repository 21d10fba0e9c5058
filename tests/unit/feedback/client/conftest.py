"""A client with a producer and a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from feedback import (
    Client,
    DeliveryFailed,
)
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import AnsweringConsumer, FakeProducer


@pytest.fixture
def store() -> MemoryStatusStore:
    return MemoryStatusStore()


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def consumer(store: MemoryStatusStore, producer: FakeProducer) -> AnsweringConsumer:
    return AnsweringConsumer(store, producer)


@pytest.fixture
def client(store: MemoryStatusStore, producer: FakeProducer) -> Iterator[Client]:
    client = Client(producer, store, "requests", queue_timeout=0.2)
    yield client
    producer.confirming.set()
    producer.error = None
    with suppress(DeliveryFailed):
        client.close(5)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool
