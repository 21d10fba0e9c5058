"""Offsets that a group has committed, with their metadata: as somebody else sets them, and every
one that it ever committed, from Kafka's own log of them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.waiting import eventually

OFFSETS_TOPIC = "__consumer_offsets"


class Landed(NamedTuple):
    """One commit of one partition, as the broker wrote it."""

    partition: int
    offset: int
    metadata: str
    at: float = 0.0
    """When, by the broker's clock, in seconds since the epoch."""


def commit_as_others(
    kafka: str, group: str, offsets: Mapping[tuple[str, int], tuple[int, str]]
) -> None:
    """Sets (offset, metadata) of partitions, as an operator or another program does; the group has
    to be empty, or to become so soon."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    wanted = [TopicPartition(*place, *told) for place, told in offsets.items()]

    def taken() -> bool:
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:  # members are still on their way out
            return False
        return all(p.error is None for p in done)

    eventually(taken, 60)
    consumer.close()


def landed(kafka: str, group: str, topic: str) -> list[Landed]:
    """The commits of a group on a topic, in the order in which the broker took them."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"reader-{uuid.uuid4()}",
            "enable.auto.commit": False,
        }
    )
    try:
        return _read(consumer, group, topic)
    finally:
        consumer.close()


def _read(consumer: Consumer, group: str, topic: str) -> list[Landed]:
    partitions = list(
        consumer.list_topics(OFFSETS_TOPIC, timeout=60).topics[OFFSETS_TOPIC].partitions
    )
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(OFFSETS_TOPIC, p), timeout=60)[1]
        for p in partitions
    }
    consumer.assign([TopicPartition(OFFSETS_TOPIC, p, 0) for p, end in ends.items() if end])
    left = {p for p, end in ends.items() if end}
    found: list[Landed] = []
    while left:
        for message in consumer.consume(1000, 0.5):
            if message.error():
                raise AssertionError(message.error())
            commit = _parse(message.key() or b"", message.value(), group, topic)
            if commit is not None:
                found.append(commit._replace(at=message.timestamp()[1] / 1000))
        positions = consumer.position([TopicPartition(OFFSETS_TOPIC, p) for p in left])
        left = {p.partition for p in positions if p.offset < ends[p.partition]}
    return found


def _parse(key: bytes, value: bytes | None, group: str, topic: str) -> Landed | None:
    (version,) = struct.unpack_from(">h", key)
    if version > 1 or value is None:
        return None
    its_group, rest = _text(key, 2)
    if its_group != group:
        return None
    its_topic, rest = _text(key, rest)
    if its_topic != topic:
        return None
    (partition,) = struct.unpack_from(">i", key, rest)
    (form,) = struct.unpack_from(">h", value)
    (offset,) = struct.unpack_from(">q", value, 2)
    at = 10 + (4 if form >= 3 else 0)
    if form >= 4:  # the flexible form: a varint length, one more than it is
        length = value[at] - 1
        return Landed(partition, offset, value[at + 1 : at + 1 + length].decode())
    return Landed(partition, offset, _text(value, at)[0])


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length
