"""How far a consumer group is behind."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from consumer.admin import admin_client, metadata
from consumer.config import Settings
from consumer.errors import ConsumerError

TIMEOUT = 10.0
PAUSE = 0.2
LOADING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


class Lag(NamedTuple):
    """One topic of the group."""

    topic: str
    partitions: int
    waiting: int
    """Messages that no member has committed yet. Those in hand of an instance are not among them:
    they are committed before they run."""


def group_lag(settings: Settings) -> list[Lag]:
    """One row a topic. Raises ConsumerError where the brokers don't answer."""
    client = admin_client(settings)
    cluster = metadata(client, settings, TIMEOUT)
    there = [topic for topic in settings.kafka_topics if topic in cluster.topics]
    places = [TopicPartition(t, p) for t in there for p in cluster.topics[t].partitions]
    if not places:
        return []
    try:
        committed = _committed(client, settings.kafka_group, places)
        ends = _offsets(client, places, LATEST)
        starts = _offsets(client, places, EARLIEST)
    except KafkaException as error:
        raise ConsumerError(f"offsets can't be read: {error.args[0].str()}") from None
    waiting = dict.fromkeys(there, 0)
    for place, end in ends.items():
        waiting[place[0]] += max(0, end - max(committed.get(place, -1), starts[place]))
    return [Lag(t, len(cluster.topics[t].partitions), waiting[t]) for t in there]


def _committed(
    client: AdminClient, group: str, places: list[TopicPartition]
) -> dict[tuple[str, int], int]:
    wanted = [ConsumerGroupTopicPartitions(group, places)]
    end = time.monotonic() + TIMEOUT
    while True:
        asked = client.list_consumer_group_offsets(wanted, request_timeout=TIMEOUT)
        try:
            found = asked[group].result().topic_partitions
        except KafkaException as error:
            # Right after a broker's start its groups are still being loaded.
            if error.args[0].code() not in LOADING or time.monotonic() > end:
                raise
            time.sleep(PAUSE)
        else:
            return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def _offsets(
    client: AdminClient, places: list[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    asked = client.list_offsets(dict.fromkeys(places, spec), request_timeout=TIMEOUT)
    return {(p.topic, p.partition): future.result().offset for p, future in asked.items()}
