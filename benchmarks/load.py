"""Requests of a topic: all there at the start, or all let in at one moment.

What is measured of a contender begins when its processes have started, share the partitions out and
have done some requests. So the load is written in a transaction while they wait, and its commit
lets all of it in: consumers read what is committed, nobody has fetched any of it in advance, and
who writes it takes no CPU from them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from feedback.contract.ids import uuid7

PARTITIONS = 12
PAYLOAD = b'{"amount":5,"currency":"EUR","customer":"c-1234"}'
_quiet = logging.getLogger("benchmarks.load")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False
LONGEST = 900
"""Seconds that a transaction may be open: the broker's limit."""


class HeldLoad:
    """Who fills a topic that is made for it."""

    def __init__(self, kafka: str, topic: str, kind: str, *, ordered: bool = False) -> None:
        """Requests of type `kind`; ids at random, or `ordered` by time."""
        self._topic = topic
        self._kind = kind.encode()
        self._new_id: Callable[[], object] = uuid7 if ordered else uuid.uuid4
        create_topic(kafka, topic)
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "linger.ms": 20,
                "transactional.id": topic,
                "transaction.timeout.ms": LONGEST * 1000,
            },
            logger=_quiet,  # what fails raises; that a coordinator loads is no news
        )
        self._producer.init_transactions(60)

    def write(self, count: int) -> None:
        """So many requests, which nobody sees yet; returns when they are there."""
        self._producer.begin_transaction()
        produce(self._producer, self._topic, self._kind, count, self._new_id)

    def let_in(self) -> None:
        """All that was written can be read."""
        self._producer.commit_transaction(60)


def create_topic(kafka: str, topic: str) -> None:
    """With PARTITIONS partitions."""
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)


def produce(
    producer: Producer, topic: str, kind: bytes, count: int, new_id: Callable[[], object]
) -> None:
    """So many requests; returns when they are there."""
    for _ in range(count):
        request_id = str(new_id()).encode()
        while True:
            try:
                producer.produce(
                    topic, PAYLOAD, request_id, headers=[("ce_id", request_id), ("ce_type", kind)]
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the topic could not be filled")
