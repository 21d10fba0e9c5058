"""Which partitions of a topic have a leader, as a client's brokers say."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException

_LOOK: Final = 2.0
"""Seconds for an answer."""


def partition_leaders(client: Any, topic: str) -> dict[int, bool]:
    """Whether each partition has a leader; nothing where no broker says so within 2 s."""
    try:
        found = client.list_topics(topic, _LOOK).topics[topic].partitions
    except (KafkaException, KeyError):
        return {}
    return {number: one.leader >= 0 for number, one in found.items()}
