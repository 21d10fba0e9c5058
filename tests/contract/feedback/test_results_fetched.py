"""How many records of a long topic are fetched ahead of their reader, on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import Producer

from feedback.client.results import Results
from feedback.outbox.relay.records import RecordSource
from stack import Stack

WAIT = 120.0
PARTS, EACH = 2, 50_000
READ = 10_000


class Fetched:
    """The most that a reader had fetched and not handed out, as its Kafka client tells."""

    def __init__(self, stack: Stack) -> None:
        self.kafka = {
            "bootstrap.servers": stack.kafka,
            "statistics.interval.ms": 20,
            "stats_cb": self._told,
        }
        self.most = 0

    def _told(self, text: str) -> None:
        topics = json.loads(text)["topics"].values()
        parts = chain.from_iterable(topic["partitions"].values() for topic in topics)
        self.most = max(self.most, sum(part["fetchq_cnt"] for part in parts))


@contextmanager
def by_a_program(kafka: dict[str, Any], topic: str) -> Iterator[Callable[[], int]]:
    with Results(kafka, topic, None, from_beginning=True, closed=lambda _: None) as results:
        yield lambda: int(results.poll(WAIT) is not None)


@contextmanager
def by_a_relay(kafka: dict[str, Any], topic: str) -> Iterator[Callable[[], int]]:
    source = RecordSource(topic, f"relay-{uuid.uuid4().hex}", kafka)
    try:
        yield lambda: len(source.poll(1.0))
    finally:
        source.close()


@pytest.fixture
def long(stack: Stack, topic: Callable[..., str]) -> str:
    """A topic of small records, which brokers keep packed."""
    name = topic(partitions=PARTS)
    producer = Producer(
        {
            "bootstrap.servers": stack.kafka,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": PARTS * EACH,
        }
    )
    at = datetime.now(UTC).isoformat()
    for number in range(PARTS * EACH):
        record = {"id": f"order-{number}", "type": "order.place", "state": "done", "code": "ok",
                  "result": {"receipt": uuid.uuid4().hex}, "at": at}  # fmt: skip
        producer.produce(name, json.dumps(record).encode(), partition=number % PARTS)
    assert producer.flush(WAIT) == 0
    return name


@pytest.mark.parametrize("by", [by_a_program, pytest.param(by_a_relay, marks=pytest.mark.long)])
def test_a_long_topic_is_not_fetched_into_memory(
    stack: Stack, long: str, by: Callable[..., Any]
) -> None:
    """Records of a hundred bytes take many times that in the client, and it was all of them."""
    fetched = Fetched(stack)
    with by(fetched.kafka, long) as read:
        number = 0
        while number < READ:
            number += read()
    assert 0 < fetched.most < PARTS * EACH / 2
