"""Which partitions of a topic have a leader, as a client's brokers say."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException

from feedback.partitions import Leading

_LOOK: Final = 2.0
"""Seconds for an answer."""


def partition_leaders(client: Any, topic: str, least: int | None = None) -> dict[int, Leading]:
    """Of each partition whether it has a leader; nothing where no broker says so within 2 s.

    `least`: replicas in sync without which it takes nothing; None: not known, so it may need all.
    """
    try:
        found = client.list_topics(topic, _LOOK).topics[topic].partitions
    except (KafkaException, KeyError):
        return {}
    return {number: _leading(one, least) for number, one in found.items()}


def _leading(partition: Any, least: int | None) -> Leading:
    if partition.leader < 0:
        return Leading.NONE
    enough = len(partition.replicas) if least is None else least
    return Leading.WHOLE if len(partition.isrs) >= enough else Leading.SHORT
