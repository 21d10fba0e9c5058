"""Result records on their way to Kafka: a producer, and what it knows the brokers to have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from feedback.errors import ConfigurationError
from feedback.guarded_producer import GuardedProducer, PlainProducer
from feedback.journal.result_outbox import StoredResult, result_message
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

    def list_topics(self, topic: str, timeout: float) -> Any: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a batch: numbers of records that arrived, and why others did not."""

    arrived: list[int]
    trouble: str | None
    shortened: list[str]
    """Ids of requests whose result no broker takes, so the record went without it."""


def connect(properties: Mapping[str, Any]) -> RecordProducer:
    """A producer with these librdkafka properties and ours. Connects later."""
    given = {name: value for name, value in properties.items() if name not in _NOT_FOR_US}
    try:
        return cast("RecordProducer", confluent_kafka.Producer({**given, **_OURS}, logger=log))
    except KafkaException as error:
        raise ConfigurationError(
            f"kafka_properties do not fit the producer of result records: {error.args[0].str()}"
        ) from None


class ResultProducer:
    """Sends batches to one topic, each record at least once. For one thread."""

    def __init__(self, topic: str, make: Callable[[], RecordProducer]) -> None:
        self._topic = topic
        self._make = make
        self._producer = GuardedProducer(make())  # wrong properties are told at the start

    def reachable(self) -> bool:
        """Whether a broker answers: asks, and so may take a while."""
        self._producer.poll(0)  # log lines of its own
        try:
            self._producer.handle.list_topics(self._topic, PROBE_TIMEOUT)
        except KafkaException:
            return False
        return True

    def deliver(self, batch: Sequence[StoredResult]) -> Delivery:
        """Sends a batch and waits for the brokers' word, DELIVERY_TIMEOUT seconds or a bit more.

        A record that is too large is tried alone, as one suffers for the others in its message
        set, and then without its result: else it would stand in the way for ever.
        """
        errors = self._send(batch)
        shortened: list[str] = []
        for stored in batch:
            if _too_large(errors.get(stored.number)):
                errors |= self._send([stored])
                if _too_large(errors.get(stored.number)):
                    errors |= self._send([stored], omit_result=True)
                    if errors[stored.number] is None:
                        shortened.append(stored.record.request_id)
        failed = [error for error in errors.values() if error is not None]
        trouble = failed[0].str() if failed else None
        if any(map(self._producer.hears, failed)) or self._producer.failure is not None:
            trouble = trouble and self._producer.failure
            self._producer.end()
            self._producer = GuardedProducer(self._make())
        arrived = [number for number, error in errors.items() if error is None]
        return Delivery(arrived, trouble, shortened)

    def _send(
        self, batch: Sequence[StoredResult], *, omit_result: bool = False
    ) -> dict[int, KafkaError | None]:
        """Number -> what the broker said; None where the record arrived."""
        late = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001 - its public name
        errors: dict[int, KafkaError | None] = dict.fromkeys((s.number for s in batch), late)

        def reporter(number: int) -> Callable[[KafkaError | None, object], None]:
            def report(error: KafkaError | None, _message: object) -> None:
                errors[number] = error

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


def _too_large(error: KafkaError | None) -> bool:
    return error is not None and message_refusal(error) == TOO_LARGE
