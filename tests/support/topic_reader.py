"""All that stands in a topic."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, Message, TopicPartition

from stack import Stack


def messages(stack: Stack, topic: str, partitions: int = 1) -> list[Message]:
    """Each partition's messages, in order, as far as they stand now."""
    consumer = Consumer({"bootstrap.servers": stack.kafka, "group.id": uuid.uuid4().hex})
    try:
        ends = {
            n: consumer.get_watermark_offsets(TopicPartition(topic, n), 10)[1]
            for n in range(partitions)
        }
        consumer.assign([TopicPartition(topic, n, 0) for n in ends])
        found: list[Message] = []
        for _ in range(600):
            if len(found) >= sum(ends.values()):
                break
            found += [m for m in consumer.consume(1000, 0.1) if m.error() is None]
        assert len(found) >= sum(ends.values()), f"{len(found)} of {ends} read in a minute"
        return found
    finally:
        consumer.close()


def ids(stack: Stack, topic: str, partitions: int = 1) -> list[str]:
    """The request ids of those messages."""
    return [request_id(message) for message in messages(stack, topic, partitions)]


def request_id(message: Message) -> str:
    """Of one message."""
    value = dict(message.headers() or [])["ce_id"]
    assert isinstance(value, bytes)
    return value.decode()
