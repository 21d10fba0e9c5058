"""What a topic takes, as its brokers say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from feedback.client.kafka_log import OutageLog

_TIMEOUT: Final = 5.0
_BOUNDS: Final = ("max.message.bytes", "segment.bytes")
"""A set of messages goes into one segment."""
_IN_SYNC: Final = "min.insync.replicas"
_ABOUT_THE_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_CONFIG,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
"""A broker has answered, if not what was asked."""


class TopicLimit(NamedTuple):
    """What was found out."""

    bytes: int | None = None
    """Of a set of messages; None where the brokers don't tell: producing will."""
    away: str | None = None
    """Why no broker has answered."""
    in_sync: int | None = None
    """Replicas in sync without which a partition takes nothing; None where brokers don't tell."""


def topic_limit(topic: str, properties: Mapping[str, Any]) -> TopicLimit:
    """Asks the brokers, for 5 s at most."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        admin = AdminClient(dict(properties), logger=OutageLog())
        answer = admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource]
        # Not raised by the future: it and the frame would keep each other, and the client.
        error = answer.exception(_TIMEOUT + 1)
    except KafkaException as refused:
        error = refused
    except TimeoutError:
        return TopicLimit(away="no broker answers")
    if error is None:
        return _said(answer.result())
    problem = error.args[0] if isinstance(error, KafkaException) else None
    if problem is not None and problem.code() in _ABOUT_THE_TOPIC:
        return TopicLimit()
    return TopicLimit(away=f"no broker answers: {problem.str() if problem else error!r}")


def _said(entries: Mapping[str, Any]) -> TopicLimit:
    return TopicLimit(_least(entries, *_BOUNDS), in_sync=_least(entries, _IN_SYNC))


def _least(entries: Mapping[str, Any], *names: str) -> int | None:
    try:
        return min(int(entries[name].value) for name in names)
    except (KeyError, TypeError, ValueError):
        return None
