"""What stands in a topic."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from feedback.contract.record import Record


def read_all(servers: str, topic: str, timeout: float = 60.0) -> list[Record]:
    """The messages that a topic has now, as the main process makes records of them."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"read-{uuid.uuid4()}"})
    try:
        partitions = consumer.list_topics(topic, timeout).topics[topic].partitions
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n))[1] for n in partitions}
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions])
        records: list[Record] = []
        end = time.monotonic() + timeout
        while len(records) < sum(ends.values()):
            message: Any = consumer.poll(max(0.0, end - time.monotonic()))
            assert message is not None, f"{len(records)} of {sum(ends.values())} messages came"
            if message.error() is None:
                records.append(
                    (
                        topic, message.partition(), message.offset(), message.timestamp()[1],
                        message.key(), message.value(), message.headers(), None, None,
                    )
                )  # fmt: skip
        return records
    finally:
        consumer.close()
