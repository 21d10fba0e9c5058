"""The client's Kafka producer: how it is connected, and another when it has failed for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import confluent_kafka

from feedback.backoff import Breaker
from feedback.broker_addresses import check_servers
from feedback.broker_probe import LOST, BrokerProbe
from feedback.client.kafka_log import OutageLog, log
from feedback.client.settings import BROKERS
from feedback.errors import ConfigurationError
from feedback.guarded_producer import GuardedProducer, PlainProducer
from feedback.message_size import message_bytes

_TOPIC_UNKNOWN_FOR: Final = 3_000  # milliseconds
_REFUSED: Final = {
    "delivery.report.only.error": "`accepted` is written from the reports of success",
    "transactional.id": "each request is sent on its own",
}
_IN_FLIGHT: Final = 0.5
"""Seconds in which brokers may still answer what a failed producer has sent."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two producers, where one after the other fails."""


def brokers(
    kafka: str | Sequence[str] | Mapping[str, Any] | PlainProducer,
) -> str | Mapping[str, Any] | PlainProducer:
    """A client's argument with a list of servers as librdkafka has it: one text, with commas.

    Raises ConfigurationError.
    """
    if not isinstance(kafka, list | tuple):
        return cast("str | Mapping[str, Any] | PlainProducer", kafka)
    if not kafka or not all(isinstance(server, str) and server.strip() for server in kafka):
        raise ConfigurationError(f"kafka is {kafka!r}: a list of servers names each as host:port")
    return ",".join(server.strip() for server in kafka)


def connect(
    kafka: str | Mapping[str, Any], delivery_timeout: float, outages: OutageLog | None = None
) -> PlainProducer:
    """A producer for bootstrap servers, or for librdkafka properties. Connects later."""
    given = {"bootstrap.servers": kafka} if isinstance(kafka, str) else dict(kafka)
    for name, reason in _REFUSED.items():
        if name in given:
            raise ConfigurationError(f"Kafka property {name} must not be set here: {reason}")
    servers = [str(given[name]) for name in BROKERS if given.get(name)]
    if not servers:
        raise ConfigurationError("kafka names no broker: give host:port, or bootstrap.servers")
    for text in servers:
        try:
            check_servers(text)
        except ValueError as error:
            raise ConfigurationError(f"kafka: {error}") from None
    if not delivery_timeout > 0:
        raise ConfigurationError(f"delivery_timeout is {delivery_timeout}: it has to be above 0")
    properties = {
        "client.id": "oncepool-client",
        "enable.idempotence": True,
        "linger.ms": 0,  # somebody waits; what is sent while others are on their way goes together
        # The partition that Java's clients choose for a key, so that order holds across languages.
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": int(delivery_timeout * 1000),
        "message.max.bytes": message_bytes(),
        # How long a topic may be unknown to the brokers before what is sent to it fails: one that
        # was just created is known within milliseconds.
        "topic.metadata.propagation.max.ms": _TOPIC_UNKNOWN_FOR,
        # How soon it is seen that the topic was made after all: the default is five minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
        **given,
    }
    try:
        return cast(
            "PlainProducer", confluent_kafka.Producer(properties, logger=outages or OutageLog())
        )
    except confluent_kafka.KafkaException as error:
        raise ConfigurationError(f"Kafka properties are not valid: {error.args[0]}") from error


class LastingProducer:
    """A producer, and the one that takes its place when it has failed for good."""

    def __init__(
        self,
        producer: PlainProducer,
        another: Callable[[], PlainProducer] | None,
        clock: Callable[[], float] = time.monotonic,
        probe: BrokerProbe | None = None,
    ) -> None:
        """`another` connects one with the same properties; None: there will be no other.

        `probe` knows when one has lost its brokers.
        """
        self._probe = probe
        self.current = GuardedProducer(producer)
        """Set by the thread that serves it."""
        self.lock = threading.Lock()
        """Held by who produces: what is given up takes nothing meanwhile, nor after that."""
        self._another = another
        self._clock = clock
        self._pauses = Breaker(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._replaced = clock()

    @property
    def lasts(self) -> bool:
        """Whether another one comes, so that what a failed one does not take may be sent yet."""
        return self._another is not None

    def heard_from(self) -> None:
        """A message is confirmed. In any thread."""
        if self._probe is not None:
            self._probe.heard_from()

    def serve(self, timeout: float, *, flush: bool = False) -> None:
        """Serves reports that come within so many seconds, and replaces what has failed.

        With `flush` nothing lingers meanwhile. For one thread.
        """
        current = self.current
        if flush:
            current.flush(timeout)
        else:
            current.poll(timeout)
        if self._probe is not None and current.failure is None and self._probe.lost(current.handle):
            with self.lock:
                current.give_up(LOST)
        if current.failure is None or self._another is None:
            return
        now = self._clock()
        if now - self._replaced > _LONGEST_PAUSE:
            self._pauses.succeeded()
        if not self._pauses.pause(now):
            self._pauses.failed(now)
            self._replaced = now
            self._replace(current, self._another)

    def _replace(
        self, failed: GuardedProducer[PlainProducer], another: Callable[[], PlainProducer]
    ) -> None:
        """Whoever waits for what it had is told before.

        A slow broker may append later still what was in flight.
        """
        log.error("the Kafka producer has failed, another takes its place: %s", failed.failure)
        if failed.flush(_IN_FLIGHT):
            failed.end()
        try:
            self.current = GuardedProducer(another())
        except ConfigurationError as error:  # a certificate's file is gone, say
            log.error("no other Kafka producer can be made yet: %s", error)


def lasting(
    kafka: str | Mapping[str, Any] | PlainProducer, delivery_timeout: float, outages: OutageLog
) -> LastingProducer:
    """One for a client's argument, as connect() has it; what is given ready-made is the only one.

    Raises ConfigurationError.
    """
    if not isinstance(kafka, str | Mapping):
        return LastingProducer(kafka, None)
    probe = BrokerProbe({"bootstrap.servers": kafka} if isinstance(kafka, str) else dict(kafka))

    def another() -> PlainProducer:
        return connect(probe.properties(), delivery_timeout, outages)

    return LastingProducer(another(), another, probe=probe)
