"""What a client has not taken yet of its partitions, by what it knows itself."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from consumer.intake.events import Place


def client_lag(
    consumer: Consumer, topics: Iterable[str], places: Iterable[Place]
) -> dict[str, int]:
    """Topic -> messages of these partitions that are not taken yet, as far as it has heard.

    Asks no broker. Nothing where the client can't say it: a part of it would pass for all.
    """
    behind = dict.fromkeys(topics, 0)
    try:
        for at in consumer.position([TopicPartition(*place) for place in places]):
            _, end = consumer.get_watermark_offsets(at, cached=True)
            # Negative where nothing was fetched yet.
            if at.offset >= 0 and end >= 0:
                behind[at.topic] = behind.get(at.topic, 0) + max(0, end - at.offset)
    except KafkaException:
        return {}
    return behind
