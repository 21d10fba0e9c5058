"""An administration client of the configured brokers, and what commands ask it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from consumer.config.settings import Settings
from consumer.errors import ConsumerError, KafkaRefused
from consumer.intake.kafka_log import QuietLog
from consumer.intake.kafka_properties import broker_properties
from feedback.broker_probe import ERRORS_ONLY
from feedback.errors import OncepoolError

TIMEOUT = 5.0
CREATED_WITHIN = 2.0
"""Seconds in which a broker has heard of a topic that was just made, also where it makes them by
itself."""
PAUSE = 0.1
_LONGEST = 1000 * 366 * 86_400_000
"""Milliseconds of retention, or of a segment, above which a topic keeps messages for ever."""
REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001


class KafkaUnreachable(ConsumerError):
    """The brokers did not answer, or let nobody in who comes like that."""


class TopicMissing(ConsumerError):
    """A topic does not exist, and the brokers create none by themselves."""


class TopicResult(NamedTuple):
    """What became of a topic that was to be made."""

    topic: str
    result: str
    """``created`` or ``exists``."""
    partitions: int


class BrokerAdmin(AdminClient):
    """Keeps why a connection was refused: who waits for an answer hears of no answer alone."""

    refusal = ""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        callback: Any = self._told
        super().__init__({**properties, "error_cb": callback}, logger=QuietLog())

    def _told(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self.refusal = error.str()


def admin_client(settings: Settings) -> BrokerAdmin:
    """A client for the configured brokers. Raises KafkaRefused where a property is wrong."""
    try:
        return BrokerAdmin({**broker_properties(settings), "log_level": ERRORS_ONLY})
    except KafkaException as error:
        raise KafkaRefused(error.args[0].str()) from None


def metadata(
    client: BrokerAdmin, settings: Settings, timeout: float = TIMEOUT, *, topic: str | None = None
) -> ClusterMetadata:
    """Brokers and topics, or of topics this one. Raises KafkaUnreachable after `timeout` seconds.

    A broker that creates topics by itself creates one that is named here.
    """
    try:
        return client.list_topics(topic, timeout=timeout)
    except KafkaException as error:
        client.poll(0)  # it is here that the client tells why
        if client.refusal:
            raise KafkaUnreachable(
                f"{settings.kafka_bootstrap_servers} does not let us in: {client.refusal}; correct"
                " security.protocol, sasl.* and ssl.* in kafka_properties"
            ) from None
        raise KafkaUnreachable(
            f"no answer from {settings.kafka_bootstrap_servers} in {timeout:g} s"
            f" ({error.args[0].str()}); is the broker up and its advertised address right?"
        ) from None


def require_topic(settings: Settings, topic: str) -> None:
    """Returns where requests can be sent to this topic. Raises TopicMissing, KafkaUnreachable.

    A broker that creates topics by itself does so here, as it would for the first message.
    """
    client = admin_client(settings)
    if topic in metadata(client, settings).topics:
        return
    end = time.monotonic() + CREATED_WITHIN
    while metadata(client, settings, topic=topic).topics[topic].error is not None:
        if time.monotonic() > end:
            raise TopicMissing(
                f"topic {topic} does not exist: run `oncepool topics create`, or correct"
                " kafka_topic or kafka_topics"
            )
        time.sleep(PAUSE)


def create_topics(
    client: BrokerAdmin, settings: Settings, config: Mapping[str, str]
) -> list[TopicResult]:
    """Makes the configured topics that are not there, with this configuration.

    Raises ConsumerError naming the first that failed, KafkaUnreachable.
    """
    partitions, replication = settings.topic_partitions, settings.topic_replication
    wanted = [
        NewTopic(
            topic, num_partitions=partitions, replication_factor=replication, config=dict(config)
        )
        for topic in settings.all_topics
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
                    f"{_advice(error.args[0], replication)}"
                ) from None
            there = metadata(client, settings, topic=topic).topics[topic]
            results.append(TopicResult(topic, "exists", len(there.partitions)))
        else:
            results.append(TopicResult(topic, "created", partitions))
    return results


def _advice(error: KafkaError, replication: int) -> str:
    if error.code() != KafkaError.INVALID_REPLICATION_FACTOR:
        return ""
    return f"; topic_replication is {replication}: it can be no more than there are brokers"


def retention_problems(
    settings: Settings, retention: timedelta, resend_window: timedelta
) -> list[str]:
    """What is too short about a journal's retention, or could not be found out.

    With any of it requests may run a second time.
    """
    problems = []
    if retention < resend_window:
        text = (
            f"{readable(retention)} is shorter than the time in which producers send again"
            f" ({readable(resend_window)}, --resend-window): what they send again runs again"
        )
        problems.append(text)
    if not settings.kafka_bootstrap_servers or not settings.kafka_topics:
        text = "the topics' retention can't be read: set kafka_bootstrap_servers, kafka_topics"
        return [*problems, text]
    try:
        kept = topic_retention(settings)
    except (OncepoolError, KafkaException) as error:
        text = f"the topics' retention could not be read: {_in_words(error)}"
        return [*problems, text]
    for topic, (longest, settings_of_it) in kept.items():
        if longest is None:
            text = (
                f"topic {topic} keeps its messages for ever ({settings_of_it}): those that are"
                f" read again after {readable(retention)} run again"
            )
            problems.append(text)
        elif retention < longest + resend_window:
            text = (
                f"{readable(retention)} is shorter than the retention of topic {topic}"
                f" ({settings_of_it}) and the time in which producers send again"
                f" ({readable(resend_window)}): a copy that comes later runs again"
            )
            problems.append(text)
    return problems


class TopicRetention(NamedTuple):
    """How long a topic keeps messages."""

    longest: timedelta | None
    """How long one may stay; None: for ever."""
    settings: str
    """What that is made of, as `retention.ms 7d + segment.ms 7d`."""


def topic_retention(settings: Settings) -> dict[str, TopicRetention]:
    """Topic -> how long it keeps messages. Raises KafkaException."""
    client = admin_client(settings)
    end = time.monotonic() + CREATED_WITHIN
    while True:
        try:
            return _retention(client, settings.kafka_topics)
        except KafkaException as error:
            # A broker may not have heard yet of a topic that was just made.
            unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not unknown or time.monotonic() > end:
                raise
            time.sleep(PAUSE)


def _retention(client: AdminClient, topics: Iterable[str]) -> dict[str, TopicRetention]:
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers: dict[ConfigResource, Future[Any]] = client.describe_configs(
        resources, request_timeout=TIMEOUT
    )
    return {
        resource.name: _kept(future.result(TIMEOUT + 1)) for resource, future in answers.items()
    }


def _kept(config: Mapping[str, Any]) -> TopicRetention:
    """Of a topic's configuration, in which the cluster's defaults stand, too.

    What is deleted are whole segments, counted from their newest message.
    """
    policy = config["cleanup.policy"].value
    if "delete" not in policy.split(","):
        return TopicRetention(None, f"cleanup.policy {policy}".rstrip())
    total, parts = timedelta(0), []
    for name in ("retention.ms", "segment.ms"):
        milliseconds = int(config[name].value)
        if not 0 <= milliseconds <= _LONGEST:
            return TopicRetention(None, f"{name} {milliseconds}")
        total += (part := timedelta(milliseconds=milliseconds))
        parts.append(f"{name} {readable(part)}")
    return TopicRetention(total, " + ".join(parts))


def _in_words(error: Exception) -> str:
    return error.args[0].str() if isinstance(error, KafkaException) else str(error)


def readable(age: timedelta) -> str:
    """As --older-than takes it: a whole number, rounded up, of the largest unit that says it."""
    seconds = math.ceil(age.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
