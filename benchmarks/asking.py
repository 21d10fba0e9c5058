"""How long one request takes, asked one at a time: from before it is produced until its answer.

Each way is a context manager that gives a function, which asks once and returns with the answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.full_path_runs import RunNames
from benchmarks.load import PAYLOAD
from benchmarks.measured import Span
from benchmarks.spread import quantile
from feedback import Client

PAUSE = 0.0003
"""Seconds between two looks of who polls."""
LONGEST = 180.0
WARM_UP = 30

Ask = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds."""

    p50: float
    p99: float
    longest: float
    count: int
    cpu: Mapping[str, float] = field(default_factory=dict)
    """Part -> microseconds a request, of who answers; empty where that was not told."""


@contextmanager
def by_client(where: RunNames, kind: str) -> Iterator[Ask]:
    """Oncepool's client, which a hint wakes."""
    with Client(where.stack.kafka, where.stack.redis, where.name, prefix=where.name) as client:
        payload = {"amount": 5, "currency": "EUR", "customer": "c-1234"}

        def ask() -> None:
            client.call(kind, payload, timeout=LONGEST)

        yield ask


@contextmanager
def by_polling(where: RunNames, kind: str) -> Iterator[Ask]:
    """A producer, and a look at the status every 0.3 ms."""
    producer = Producer({"bootstrap.servers": where.stack.kafka, "linger.ms": 0})
    statuses = redis.Redis.from_url(where.stack.redis)

    def ask() -> None:
        key = _produce(producer, where.name, kind)
        name = f"{where.name}:status:{key.decode()}"
        end = time.monotonic() + LONGEST
        while b'"done"' not in (statuses.get(name) or b""):
            if time.monotonic() > end:
                raise TimeoutError(f"{key!r} was not answered in {LONGEST:g} s")
            time.sleep(PAUSE)

    yield ask
    producer.flush(10)
    statuses.close()


@contextmanager
def by_consuming(where: RunNames, kind: str) -> Iterator[Ask]:
    """No work at all: produced, and consumed by the same process."""
    producer = Producer({"bootstrap.servers": where.stack.kafka, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": where.stack.kafka,
            "group.id": where.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([where.name])

    def ask() -> None:
        key = _produce(producer, where.name, kind)
        end = time.monotonic() + LONGEST
        while (message := consumer.poll(1.0)) is None or message.key() != key:
            if time.monotonic() > end:
                raise TimeoutError(f"{key!r} did not come in {LONGEST:g} s")

    yield ask
    producer.flush(10)
    consumer.close()


@contextmanager
def by_committing(where: RunNames, _kind: str) -> Iterator[Ask]:
    """A commit of an offset and its answer: a round trip to the broker that is written down."""
    consumer = Consumer({"bootstrap.servers": where.stack.kafka, "group.id": f"{where.name}-c"})

    def ask() -> None:
        consumer.commit(offsets=[TopicPartition(where.name, 0, 0)], asynchronous=False)

    yield ask
    consumer.close()


def _produce(producer: Producer, topic: str, kind: str) -> bytes:
    key = str(uuid.uuid4()).encode()
    headers: list[tuple[str, str | bytes | None]] = [("ce_id", key), ("ce_type", kind.encode())]
    producer.produce(topic, PAYLOAD, key, headers=headers)
    producer.poll(0)
    return key


def asked(ask: Ask, count: int, pause: float = 0.0) -> Times:
    """Asks some times that do not count, and then `count` times, `pause` seconds between two."""
    return times_of([span.end - span.begin for span in spans_of(ask, count, pause)])


def spans_of(ask: Ask, count: int, pause: float = 0.0) -> list[Span]:
    """The same, one by one: from before it was sent until its answer was there."""
    for _ in range(min(WARM_UP, count)):
        ask()
    spans = []
    for _ in range(count):
        begun = time.monotonic()
        ask()
        spans.append(Span(begun, time.monotonic()))
        time.sleep(pause)
    return spans


def asked_in_all(count: int) -> int:
    """Requests of `asked`, those included that do not count."""
    return count + min(WARM_UP, count)


def times_of(seconds: Sequence[float]) -> Times:
    """Where they lie."""
    ordered = [1000 * one for one in sorted(seconds)]
    return Times(quantile(ordered, 0.5), quantile(ordered, 0.99), ordered[-1], len(ordered))
