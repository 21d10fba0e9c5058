"""Answers whatever comes in a topic, for benchmarks/client.py. Started by it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import redis
from confluent_kafka import Consumer, Message

from feedback.contract.envelope import read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite

AT_ONCE = 500
KEPT = 600
"""Seconds for which an answer stands."""


def plain(messages: Sequence[Message], store: redis.Redis, prefix: str) -> None:
    """The word `done` under each key."""
    with store.pipeline(transaction=False) as pipeline:
        for message in messages:
            pipeline.set(f"{prefix}:{(message.key() or b'').decode()}", b"done", ex=KEPT)
        pipeline.execute()


def statuses(messages: Sequence[Message], store: RedisStatusStore) -> None:
    """A status of each, and a hint to who waits for it."""
    store.write([_answer(message) for message in messages])


def _answer(message: Message) -> StatusWrite:
    envelope = read(
        (
            message.topic() or "", message.partition() or 0, message.offset() or 0,
            message.timestamp()[1], message.key(), message.value(), message.headers(), None, None,
        )  # type: ignore[arg-type]
    )  # fmt: skip
    value = StatusFields(
        envelope.id,
        envelope.type,
        State.DONE,
        1,
        code="ok",
        attempt=1,
        at=datetime.now(UTC),
        fingerprint=fingerprint(
            envelope.type, envelope.payload or b"", envelope.options.content_type
        ),
        result=envelope.payload,
    ).encode()
    return StatusWrite(envelope.id, value, KEPT, reply_to=envelope.reply_to)


def main() -> None:
    """Until SIGTERM: kafka, redis, topic (and prefix), `plain` or `statuses`."""
    kafka, url, topic, form = sys.argv[1:5]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    bare, store = redis.Redis.from_url(url), RedisStatusStore(url, topic, timeout=30.0)
    while not stop.is_set():
        first = consumer.poll(0.2)
        if first is None:
            continue
        found = [m for m in (first, *consumer.consume(AT_ONCE - 1, 0)) if m.error() is None]
        if not found:
            continue
        consumer.commit(asynchronous=True)
        if form == "plain":
            plain(found, bare, topic)
        else:
            statuses(found, store)
    consumer.close()
    store.close()


if __name__ == "__main__":
    main()
