"""What the consumer group has committed, asked from outside."""

from __future__ import annotations

import time
from typing import Self

from confluent_kafka import Consumer, TopicPartition

TIMEOUT = 10.0
SETTLED = 0.3
"""Seconds between two equal looks: bytes of a killed process may still be on their way."""


class GroupOffsets:
    """Reads the offsets of a group on one topic; never joins it."""

    def __init__(self, kafka: str, name: str, partitions: int) -> None:
        """`name`: of the group, and of the topic."""
        self._places = [TopicPartition(name, partition) for partition in range(partitions)]
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": name, "enable.auto.commit": False}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def committed_by(self, instance: str) -> dict[int, int]:
        """Partition -> offset, where a token of this instance stands: it is dead by now."""
        before: dict[int, int] | None = None
        found = self._standing(instance)
        while found != before:
            time.sleep(SETTLED)
            before, found = found, self._standing(instance)
        return found

    def behind(self) -> int:
        """Messages that nobody has committed yet."""
        committed = self._committed()
        behind = 0
        for place in self._places:
            _, end = self._consumer.get_watermark_offsets(place, TIMEOUT)
            behind += end - committed.get(place.partition, (0, ""))[0]
        return behind

    def _standing(self, instance: str) -> dict[int, int]:
        return {
            partition: offset
            for partition, (offset, metadata) in self._committed().items()
            if metadata.split(";")[1].startswith(f"{instance}-")
        }

    def _committed(self) -> dict[int, tuple[int, str]]:
        """Partition -> committed offset and its metadata: version;token;..."""
        found = self._consumer.committed(self._places, TIMEOUT)
        return {p.partition: (p.offset, p.metadata or "") for p in found if p.offset >= 0}
