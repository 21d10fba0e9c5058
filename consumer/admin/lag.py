"""How far a consumer group is behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from consumer.admin.kafka_admin import BrokerAdmin, admin_client, metadata
from consumer.config.settings import Settings
from consumer.errors import ConsumerError, KafkaRefused
from consumer.intake.kafka_log import QuietLog
from consumer.intake.kafka_properties import broker_properties
from consumer.intake.offset_metadata import gap_of
from feedback.broker_probe import ERRORS_ONLY

TIMEOUT = 10.0
PAUSE = 0.2
LOADING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
MEMBERS = frozenset({"group.instance.id", "group.remote.assignor"})
"""Properties of a member, which this client must not be."""
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


class Lag(NamedTuple):
    """One topic of the group."""

    topic: str
    partitions: int
    waiting: int
    """Messages that no member has committed yet. Those in hand of an instance are not among them:
    they are committed before they run."""


class UnfinishedOffsets(NamedTuple):
    """What of a partition was committed and was not known to be finished at that commit."""

    topic: str
    partition: int
    mark: int
    """The first offset of it."""
    committed: int
    """The offset behind it."""
    times: int
    """How often it was read again without an end."""
    instance: str
    """Who committed it."""


def group_lag(settings: Settings) -> list[Lag]:
    """One row a topic. Raises ConsumerError where the brokers don't answer."""
    client = admin_client(settings)
    topics = _places(client, settings)
    waiting = dict.fromkeys(topics, 0)
    if places := list(chain(*topics.values())):
        with _told():
            committed = {(p.topic, p.partition): p.offset for p in _committed(settings, places)}
            ends = _offsets(client, places, LATEST)
            starts = _offsets(client, places, EARLIEST)
        for place, end in ends.items():
            waiting[place[0]] += max(0, end - max(committed.get(place, -1), starts[place]))
    return [Lag(topic, len(of_topic), waiting[topic]) for topic, of_topic in topics.items()]


def group_unfinished(settings: Settings) -> list[UnfinishedOffsets]:
    """What the group's commits say of each partition that has such a gap.

    Of a live instance that is what it has in hand. Raises ConsumerError where the brokers don't
    answer.
    """
    places = list(chain(*_places(admin_client(settings), settings).values()))
    if not places:
        return []
    with _told():
        found = _committed(settings, places)
    return [row for place in found if (row := _unfinished(place)) is not None]


def _places(client: BrokerAdmin, settings: Settings) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic that is there, in the order of the settings.

    One that was just made may show none yet.
    """
    topics = metadata(client, settings, TIMEOUT).topics
    return {
        topic: [TopicPartition(topic, one) for one in topics[topic].partitions]
        for topic in settings.kafka_topics
        if topic in topics
    }


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise ConsumerError(f"offsets can't be read: {error.args[0].str()}") from None


def _unfinished(place: TopicPartition) -> UnfinishedOffsets | None:
    try:
        gap = gap_of(place.offset, place.metadata)
    except ValueError:
        return None  # another program's
    if gap is None:
        return None
    # A token is 1;<instance>-<number>;
    instance = gap.token.split(";")[1].rpartition("-")[0]
    return UnfinishedOffsets(
        place.topic, place.partition, gap.mark, gap.committed, gap.times, instance
    )


def _committed(settings: Settings, places: list[TopicPartition]) -> list[TopicPartition]:
    """Those of the places that the group has committed."""
    # Not by the administration client: where a coordinator answers with an error, that one's
    # handler reaches for a group that it does not have, and the process is gone (librdkafka 2.16).
    reader = _reader(settings)
    end = time.monotonic() + TIMEOUT
    try:
        while True:
            try:
                found = reader.committed(places, timeout=TIMEOUT)
            except KafkaException as error:
                # Right after a broker's start its groups are still being loaded.
                if error.args[0].code() not in LOADING or time.monotonic() > end:
                    raise
                time.sleep(PAUSE)
            else:
                return [p for p in found if p.offset >= 0]
    finally:
        reader.close()


def _reader(settings: Settings) -> Consumer:
    """A client of the group that never joins it."""
    properties: dict[str, Any] = {
        **{k: v for k, v in broker_properties(settings).items() if k not in MEMBERS},
        "group.id": settings.kafka_group,
        # Both kinds of group answer it, where the newer protocol asks who the member is.
        "group.protocol": "classic",
        "log_level": ERRORS_ONLY,
    }
    try:
        return Consumer(properties, logger=QuietLog())
    except KafkaException as error:
        raise KafkaRefused(error.args[0].str()) from None


def _offsets(
    client: AdminClient, places: list[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    asked = client.list_offsets(dict.fromkeys(places, spec), request_timeout=TIMEOUT)
    return {(p.topic, p.partition): future.result().offset for p, future in asked.items()}
