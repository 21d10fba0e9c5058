"""The Kafka consumer of a reader of result records."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from feedback.broker_probe import ERRORS_ONLY, BrokerProbe
from feedback.client.kafka_log import OutageLog
from feedback.errors import ConfigurationError

_NOT_SHARED: Final = frozenset(
    {
        "group.id", "group.instance.id", "client.id", "group.protocol", "transactional.id",
        "on_delivery",
    }
)  # fmt: skip
"""A producer's, or of who was given it: no consumer takes `on_delivery`."""

FETCHED: Final[dict[str, Any]] = {
    "queued.max.messages.kbytes": 16 * 1024,
    "queued.min.messages": 1_000,
    "max.partition.fetch.bytes": 128 * 1024,
    "fetch.queue.backoff.ms": 20,
}
"""How much is fetched ahead. By the library's own bounds that is 100,000 records of each partition,
as long as they have 64 MiB without their headers and what it keeps of each: 300 MiB in memory. And
for how long nothing is fetched once that is full: by its own second the reader ran dry."""


def shared(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """What of a producer's properties holds for a consumer of the results, too, and its bounds."""
    return FETCHED | {name: value for name, value in kafka.items() if name not in _NOT_SHARED}


def properties(kafka: Mapping[str, Any], group: str | None) -> dict[str, Any]:
    """Of the consumer, from what a client was given."""
    given = shared(kafka)
    given.pop("partition.assignment.strategy", None)  # assignments here are whole ones
    return {
        **given,
        "client.id": "oncepool-results",
        # Without a group of its own nothing is ever committed, but the library wants a name.
        "group.id": group or f"oncepool-results-{uuid.uuid4()}",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "log_level": ERRORS_ONLY,
    }


def connect(probe: BrokerProbe, outages: OutageLog) -> Consumer:
    """Raises ConfigurationError. Connects later."""
    try:
        return Consumer(probe.properties(), logger=outages)
    except KafkaException as error:
        raise ConfigurationError(f"Kafka properties are not valid: {error.args[0]}") from error
