"""How long a request may still be needed: as its topic keeps it, and as producers send it again."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from consumer.admin.kafka_admin import admin_client
from consumer.config.settings import Settings
from feedback.errors import OncepoolError

TIMEOUT = 5.0


def retention_warnings(
    settings: Settings, retention: timedelta, resend_window: timedelta
) -> list[str]:
    """What is too short about a journal's retention, or could not be found out."""
    if not settings.kafka_bootstrap_servers or not settings.kafka_topics:
        return [
            "the topics' retention was not looked at: set kafka_bootstrap_servers, kafka_topics"
        ]
    try:
        kept = topic_retention(settings)
    except (OncepoolError, KafkaException) as error:
        return [f"the topics' retention could not be read: {error}"]
    warnings = []
    for topic, time in kept.items():
        if time is None:
            warnings.append(
                f"topic {topic} keeps its messages for ever: those that are read again after"
                f" {readable(retention)} run again"
            )
        elif retention < time + resend_window:
            warnings.append(
                f"{readable(retention)} is shorter than the retention of topic {topic}"
                f" ({readable(time)}) and the time in which producers send again"
                f" ({readable(resend_window)}): a copy that comes later runs again"
            )
    return warnings


def topic_retention(settings: Settings) -> dict[str, timedelta | None]:
    """Topic -> how long it keeps messages; None for ever. Raises KafkaException."""
    client = admin_client(settings)
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in settings.kafka_topics]
    answers: dict[ConfigResource, Future[Any]] = client.describe_configs(
        resources, request_timeout=TIMEOUT
    )
    kept: dict[str, timedelta | None] = {}
    for resource, future in answers.items():
        milliseconds = int(future.result(TIMEOUT + 1)["retention.ms"].value)
        kept[resource.name] = None if milliseconds < 0 else timedelta(milliseconds=milliseconds)
    return kept


def readable(time: timedelta) -> str:
    """As --older-than takes it."""
    seconds = time.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds:.3g}s"
