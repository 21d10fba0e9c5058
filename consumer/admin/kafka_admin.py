"""An administration client of the configured brokers, and what commands ask it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from consumer.config.settings import Settings
from consumer.errors import ConsumerError, KafkaRefused
from consumer.intake.logs import librdkafka_logger

ERRORS_ONLY = 3  # syslog level: consumer properties draw a warning from an administration client


class KafkaUnreachable(ConsumerError):
    """The brokers did not answer."""


class TopicResult(NamedTuple):
    """What became of a topic that was to be made."""

    topic: str
    result: str
    """``created`` or ``exists``."""
    partitions: int


def admin_client(settings: Settings) -> AdminClient:
    """A client for the configured brokers. Raises KafkaRefused where a property is wrong."""
    properties: dict[str, Any] = {
        **settings.kafka_properties,
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "log_level": ERRORS_ONLY,
    }
    try:
        return AdminClient(properties, logger=librdkafka_logger())
    except KafkaException as error:
        raise KafkaRefused(error.args[0].str()) from None


def metadata(client: AdminClient, settings: Settings, timeout: float = 5.0) -> ClusterMetadata:
    """Brokers and topics. Raises KafkaUnreachable after `timeout` seconds."""
    try:
        return client.list_topics(timeout=timeout)
    except KafkaException as error:
        raise KafkaUnreachable(
            f"no answer from {settings.kafka_bootstrap_servers} in {timeout:g} s"
            f" ({error.args[0].str()}); is the broker up and its advertised address right?"
        ) from None


def create_topics(
    client: AdminClient, topics: Iterable[str], partitions: int, replication: int
) -> list[TopicResult]:
    """Makes the topics that are not there. Raises ConsumerError naming the first that failed."""
    wanted = [
        NewTopic(topic, num_partitions=partitions, replication_factor=replication)
        for topic in topics
    ]
    results: list[TopicResult] = []
    futures: dict[str, Future[None]] = client.create_topics(wanted, request_timeout=15.0)
    for topic, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConsumerError(
                    f"topic {topic} could not be created: {error.args[0].str()}"
                ) from None
            there = client.list_topics(topic, timeout=5.0).topics[topic]
            results.append(TopicResult(topic, "exists", len(there.partitions)))
        else:
            results.append(TopicResult(topic, "created", partitions))
    return results
