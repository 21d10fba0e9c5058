"""Sends messages to their topics once more, one by one, each confirmed before the next."""

from __future__ import annotations

from typing import Self

from confluent_kafka import KafkaError, KafkaException

from consumer.config.settings import Settings
from consumer.errors import ConsumerError
from consumer.intake.kafka_properties import producer_properties
from feedback.client.producer import connect
from feedback.contract.late_messages import timely
from feedback.guarded_producer import GuardedProducer
from feedback.operations.dead_message import DeadMessage
from feedback.produce_errors import message_refusal, topic_refusal

TIMEOUT = 30.0


class NotSent(ConsumerError):
    """The brokers did not confirm a message: they would not confirm the next one either."""


class NotTaken(ConsumerError):
    """The brokers take no such message, or not for its topic: that says nothing of others."""


class Resender:
    """A producer for the configured brokers. Raises ConfigurationError for wrong properties."""

    def __init__(self, settings: Settings) -> None:
        self._producer = GuardedProducer(connect(producer_properties(settings), TIMEOUT))

    def send(self, letter: DeadMessage) -> None:
        """Returns when the broker has it, as it was, but that its topic keeps it however old it is.

        Raises NotTaken, NotSent.
        """
        answers: list[KafkaError | None] = []
        timestamp, more = timely(letter.produced_at, letter.headers, letter.read_at)
        try:
            self._producer.produce(
                letter.topic,
                key=letter.key,
                value=letter.value,
                headers=[*letter.headers, *more],
                timestamp=timestamp,
                on_delivery=lambda error, _message: answers.append(error),
            )
        except KafkaException as error:
            answers.append(error.args[0])
        else:
            self._producer.flush(TIMEOUT + 1)
        problem = answers[0] if answers else None
        if problem is not None and (topic_refusal(problem) or message_refusal(problem)):
            raise NotTaken(f"topic {letter.topic} did not take it: {problem.str()}")
        if problem is not None or not answers:
            silence = self._producer.failure or f"no answer within {TIMEOUT:g} s"
            raise NotSent(
                f"topic {letter.topic} did not take the message:"
                f" {silence if problem is None else problem.str()}; those that were not"
                " confirmed are still dead letters"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.handle.purge()
