"""A topic, read to its end."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message, TopicPartition


def all_messages(kafka: str, topic: str) -> list[Message]:
    """All messages that are there, also of open transactions."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"{topic}-copies",
                         "enable.auto.commit": False, "enable.partition.eof": False,
                         "isolation.level": "read_uncommitted"})  # fmt: skip
    found: list[Message] = []
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        spots = [TopicPartition(topic, number, 0) for number in partitions]
        ends = {s.partition: consumer.get_watermark_offsets(s, timeout=30)[1] for s in spots}
        consumer.assign(spots)
        until = time.monotonic() + 120
        while any(_position(consumer, spot) < ends[spot.partition] for spot in spots):
            assert time.monotonic() < until, "the topic can't be read to its end"
            found += [one for one in consumer.consume(1000, 0.5) if one.error() is None]
    finally:
        consumer.close()
    return found


def _position(consumer: Consumer, spot: TopicPartition) -> int:
    """Offset of the next message; below 0 before the first one was read."""
    [here] = consumer.position([spot])
    return max(0, here.offset)
