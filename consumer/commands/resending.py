"""Sends messages to their topics once more, one by one, each confirmed before the next."""

from __future__ import annotations

from typing import Any, Self

from confluent_kafka import KafkaException

from consumer.config.settings import Settings
from consumer.errors import ConsumerError
from consumer.intake.kafka_properties import producer_properties
from feedback.client.producer import connect
from feedback.guarded_producer import GuardedProducer
from feedback.operations.dead_message import DeadMessage

TIMEOUT = 30.0


class NotSent(ConsumerError):
    """The broker did not confirm a message."""


class Resender:
    """A producer for the configured brokers. Raises ConfigurationError for wrong properties."""

    def __init__(self, settings: Settings) -> None:
        self._producer = GuardedProducer(connect(producer_properties(settings), TIMEOUT))

    def send(self, letter: DeadMessage) -> None:
        """Returns when the broker has it: bytes, headers and timestamp as they were.

        Raises NotSent.
        """
        failures: list[str] = []
        answers: list[Any] = []

        def report(error: object, message: object) -> None:
            answers.append(message)
            if error is not None:
                failures.append(str(error))

        try:
            self._producer.produce(
                letter.topic,
                key=letter.key,
                value=letter.value,
                headers=list(letter.headers),
                timestamp=round(letter.produced_at.timestamp() * 1000),
                on_delivery=report,
            )
        except KafkaException as error:
            failures.append(error.args[0].str())
        else:
            self._producer.flush(TIMEOUT + 1)
        if failures or not answers:
            silence = self._producer.failure or f"no answer within {TIMEOUT:g} s"
            problem = failures[0] if failures else silence
            raise NotSent(
                f"topic {letter.topic} did not take the message: {problem}; those that were not"
                " confirmed are still dead letters"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.handle.purge()
