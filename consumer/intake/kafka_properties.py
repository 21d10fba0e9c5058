"""The librdkafka properties of the consumer."""

from __future__ import annotations

from typing import Any, Literal

from consumer.config.librdkafka import without_others
from consumer.config.settings import Settings
from feedback.message_size import message_bytes

Protocol = Literal["consumer", "classic"]

OURS: dict[str, str | bool | int] = {
    # Offsets are committed before requests run, each batch with its token, and by nothing else.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
}

DEFAULTS: dict[str, str | bool | int] = {
    # What the client may fetch in advance, for all partitions together. Its own 64 MiB would be
    # more than everything else in this process.
    "queued.max.messages.kbytes": 16 * 1024,
    # Headers don't count there, so messages are bounded too, for each partition: the default is ten
    # times as many.
    "queued.min.messages": 10_000,
    # How long it stops fetching once that is full: the default second would let the queue run dry.
    "fetch.queue.backoff.ms": 20,
    "socket.keepalive.enable": True,
    # How soon a member of a classic group hears of a topic, or of partitions, made after it joined:
    # the default is five minutes. With KIP-848 the broker tells.
    "topic.metadata.refresh.interval.ms": 10_000,
    # How long a commit that could not be sent waits until it is tried again. A coordinator that is
    # found meanwhile is taken for dead because of a commit that stands ready for the one before it,
    # and looked for anew: with the default of 100 ms, less than a far broker takes to answer, a
    # member goes round in that until its group puts it out (seen with 2.16.0).
    "retry.backoff.ms": 2000,
    "retry.backoff.max.ms": 2000,
}
"""What kafka_properties may overrule."""

BROKER_STATES = "broker"
"""librdkafka's debug context that says each time a connection breaks. At other levels the same line
is left out where it was logged within the last 30 s, and an application's error callback hears
nothing of it."""


def properties(settings: Settings, protocol: Protocol) -> dict[str, Any]:
    """What the client is made of. Raises nothing: the settings were checked."""
    given = without_others(settings.kafka_properties, protocol)
    contexts = [BROKER_STATES, str(given.pop("debug", ""))]
    return {
        **DEFAULTS,
        **given,
        **OURS,
        **_group(settings, protocol),
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "group.id": settings.kafka_group,
        "group.protocol": protocol,
        "auto.offset.reset": settings.auto_offset_reset,
        "max.poll.interval.ms": int(settings.kafka_max_poll_interval * 1000),
        "debug": ",".join(filter(None, contexts)),
    }


def broker_properties(settings: Settings) -> dict[str, Any]:
    """How brokers are reached: all that a client needs that is no consumer."""
    return {
        **settings.kafka_properties,
        "bootstrap.servers": settings.kafka_bootstrap_servers,
    }


def producer_properties(settings: Settings) -> dict[str, Any]:
    """The same for producers: they take what consumers do (`max_payload`), unless it is set."""
    return {"message.max.bytes": message_bytes(settings.max_payload), **broker_properties(settings)}


def _group(settings: Settings, protocol: Protocol) -> dict[str, Any]:
    if protocol == "consumer":
        return {}  # the broker assigns, and says how long a member may be silent
    session = settings.kafka_session_timeout
    return {
        "partition.assignment.strategy": settings.kafka_assignor,
        "session.timeout.ms": int(session * 1000),
        "heartbeat.interval.ms": int(settings.kafka_properties.get("heartbeat.interval.ms", 0))
        or min(3000, int(session * 1000 / 3)),
    }
