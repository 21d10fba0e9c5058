"""Result records on their way to Kafka: a producer, and what it knows the brokers to have."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from feedback.broker_probe import LOST, BrokerProbe
from feedback.errors import ConfigurationError
from feedback.guarded_producer import GuardedProducer, PlainProducer
from feedback.journal.result_outbox import StoredResult, result_message
from feedback.partition_leaders import partition_leaders
from feedback.partitions import Leading, StuckPartitions
from feedback.produce_errors import TOO_LARGE, message_refusal

log = logging.getLogger("oncepool.kafka")

DELIVERY_TIMEOUT: Final = 10.0
"""Seconds after which a record that no broker confirmed counts as not delivered."""
PROBE_TIMEOUT: Final = 2.0
_REPORT_LATE: Final = 2.0
_ERRORS_ONLY: Final = 3  # syslog level: consumer properties draw a warning from a producer
_OURS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Java's clients, and as ours for requests
    "delivery.timeout.ms": int(DELIVERY_TIMEOUT * 1000),
    "delivery.report.only.error": False,
    "log_level": _ERRORS_ONLY,
}
_NOT_FOR_US: Final = ("transactional.id",)
"""A record is sent in no Kafka transaction: the journal's decides whether it goes again."""


class RecordProducer(PlainProducer, Protocol):
    """What is used of confluent_kafka.Producer."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a batch: numbers of records that arrived, and why others did not.

    Without trouble, what did not arrive is for partitions that take nothing: others may.
    """

    arrived: list[int]
    trouble: str | None
    shortened: list[str]
    """Ids of requests whose result no broker takes, so the record went without it."""
    stuck: list[int] = field(default_factory=list)
    """Partitions of which it is news that they take nothing."""


def connect(properties: Mapping[str, Any]) -> RecordProducer:
    """A producer with these librdkafka properties and ours. Connects later."""
    given = {name: value for name, value in properties.items() if name not in _NOT_FOR_US}
    try:
        return cast("RecordProducer", confluent_kafka.Producer({**given, **_OURS}, logger=log))
    except KafkaException as error:
        raise ConfigurationError(
            f"kafka_properties do not fit the producer of result records: {error.args[0].str()}"
        ) from None


def result_producer(topic: str, kafka: Mapping[str, Any]) -> ResultProducer:
    """One that sends to this topic with these librdkafka properties.

    Raises ConfigurationError.
    """
    probe = BrokerProbe(kafka)
    return ResultProducer(topic, lambda: connect(probe.properties()), probe)


class ResultProducer:
    """Sends batches to one topic, each record at least once. For one thread."""

    def __init__(
        self,
        topic: str,
        make: Callable[[], RecordProducer],
        probe: BrokerProbe | None = None,
    ) -> None:
        """`probe` knows when what was made has lost its brokers."""
        self._topic = topic
        self._make = make
        self._probe = probe
        self._producer = GuardedProducer(make())  # wrong properties are told at the start
        self._stuck = StuckPartitions()
        self._where: dict[int, int] = {}
        """Number of a record -> the partition that it last went to."""

    def reachable(self) -> bool:
        """Whether a broker answers: asks, and so may take a while.

        A producer that does not answer in time stays, as it may be connecting for longer than that.
        It goes where it has lost its brokers.
        """
        self._producer.poll(0)  # log lines of its own, and that all brokers are down
        handle = self._producer.handle
        if self._probe is not None and self._probe.lost(handle):
            self._replace_lost(self._probe)
            return False
        try:
            return bool(handle.list_topics(self._topic, PROBE_TIMEOUT).brokers)
        except KafkaException:
            return False

    def _replace_lost(self, probe: BrokerProbe) -> None:
        try:
            self._producer = GuardedProducer(self._make())
        except ConfigurationError as error:  # a certificate's file is gone, say
            log.warning("no other producer of result records can be made yet: %s", error)
            probe.stays()
        else:
            log.error("another producer of result records takes the place of one: %s", LOST)

    def deliver(self, batch: Sequence[StoredResult]) -> Delivery:
        """Sends a batch and waits for the brokers' word, DELIVERY_TIMEOUT seconds or a bit more.

        A record that is too large is tried alone, as one suffers for the others in its message
        set, and then without its result: else it would stand in the way for ever.
        """
        self._where.clear()
        self._stuck.look(self._leaders, time.monotonic())
        keys = {stored.number: stored.record.request_id.encode() for stored in batch}
        now = time.monotonic()
        ready = [one for one in batch if not self._stuck.waits(keys[one.number], now)]
        errors = self._send(ready) if ready else {}
        shortened: list[str] = []
        for stored in ready:
            if _too_large(errors.get(stored.number)):
                errors |= self._send([stored])
                if _too_large(errors.get(stored.number)):
                    errors |= self._send([stored], omit_result=True)
                    if errors[stored.number] is None:
                        shortened.append(stored.record.request_id)
        failed = [error for error in errors.values() if error is not None]
        trouble = failed[0].str() if failed else None
        stuck = None
        if any(map(self._producer.hears, failed)) or self._producer.failure is not None:
            trouble = trouble and self._producer.failure
            self._producer.end()
            self._producer = GuardedProducer(self._make())
        else:
            stuck = self._explained(errors, keys)
        arrived = [number for number, error in errors.items() if error is None]
        return Delivery(arrived, trouble if stuck is None else None, shortened, stuck or [])

    def _explained(
        self, errors: Mapping[int, KafkaError | None], keys: Mapping[int, bytes]
    ) -> list[int] | None:
        """As StuckPartitions.explain(); None also where one was not on its way to a partition."""
        places = {number: self._where.get(number, -1) for number in errors}
        confirmed = {keys[n]: places[n] for n, error in errors.items() if error is None}
        late = {keys[n]: places[n] for n, error in errors.items() if error is not None}
        self._stuck.took(confirmed.values())
        if -1 in late.values() or not all(map(_in_time_or_late, errors.values())):
            return None
        if not late:
            return []
        return self._stuck.explain(confirmed, late, self._leaders, time.monotonic())

    def _leaders(self) -> Mapping[int, Leading]:
        return partition_leaders(self._producer.handle, self._topic)

    def _send(
        self, batch: Sequence[StoredResult], *, omit_result: bool = False
    ) -> dict[int, KafkaError | None]:
        """Number -> what the broker said; None where the record arrived."""
        late = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001 - its public name
        errors: dict[int, KafkaError | None] = dict.fromkeys((s.number for s in batch), late)

        def reporter(number: int) -> Callable[[KafkaError | None, Any], None]:
            def report(error: KafkaError | None, message: Any) -> None:
                errors[number] = error
                if error is None and self._probe is not None:
                    self._probe.heard_from()
                partition = message.partition()
                if partition is not None:
                    self._where[number] = partition

            return report

        for stored in batch:
            message = result_message(stored, omit_result=omit_result)
            try:
                self._producer.produce(
                    self._topic,
                    key=message.key,
                    value=message.value,
                    headers=message.headers,
                    on_delivery=reporter(stored.number),
                )
            except BufferError:  # the queue is full: the rest goes with the next batch
                break
            except KafkaException as error:
                errors[stored.number] = error.args[0]
        # Reports come within the delivery's own time-out; a later one changes nothing any more.
        self._producer.flush(DELIVERY_TIMEOUT + _REPORT_LATE)
        return errors.copy()


def _in_time_or_late(error: KafkaError | None) -> bool:
    """Whether nothing is said of the record but when: anything else is no partition's fault."""
    return error is None or error.code() == KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - as above


def _too_large(error: KafkaError | None) -> bool:
    return error is not None and message_refusal(error) == TOO_LARGE
