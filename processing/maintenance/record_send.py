"""What became of the records of one batch, through whichever producers they went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from feedback.guarded_producer import TAKEN_BACK, GuardedProducer
from feedback.journal.result_outbox import StoredResult, result_message
from feedback.produce_errors import TOO_LARGE, message_refusal


class RecordSend:
    """One batch on its way to a topic."""

    def __init__(self, topic: str, heard: Callable[[], object] | None = None) -> None:
        """`heard` is told of each record that a broker confirms."""
        self._topic = topic
        self._heard = heard
        self.errors: dict[int, KafkaError | None] = {}
        """Number of a record -> what the broker said; None where it arrived."""
        self.where: dict[int, int] = {}
        """Number of a record -> the partition that it last went to."""

    def through(
        self,
        producer: GuardedProducer[Any],
        batch: Sequence[StoredResult],
        end: float,
        *,
        omit_result: bool = False,
    ) -> None:
        """Sends these and waits for what is said of them, until `end` on the monotonic clock."""
        for stored in batch:
            self.forget(stored)
        for stored in batch:
            message = result_message(stored, omit_result=omit_result)
            try:
                producer.produce(
                    self._topic,
                    key=message.key,
                    value=message.value,
                    headers=message.headers,
                    on_delivery=self._reporter(stored.number),
                )
            except BufferError:  # the queue is full: the rest goes with the next batch
                break
            except KafkaException as error:
                self.errors[stored.number] = error.args[0]
        if batch:
            producer.flush(max(0.0, end - time.monotonic()))

    def forget(self, stored: StoredResult) -> None:
        """It goes again: nothing is known of it yet."""
        self.errors[stored.number] = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001 - its public name
        self.where.pop(stored.number, None)

    def has_arrived(self, stored: StoredResult) -> bool:
        """Whether a broker has confirmed it."""
        return self.errors[stored.number] is None

    def too_large(self, batch: Iterable[StoredResult]) -> list[StoredResult]:
        """Those that no broker takes for their size, or that of their set."""
        return [one for one in batch if _too_large(self.errors[one.number])]

    def arrived(self, batch: Iterable[StoredResult]) -> list[int]:
        """Numbers of those that need not go again: none of their key before them does."""
        held: set[str] = set()
        found = []
        for stored in batch:
            if stored.record.request_id in held or not self.has_arrived(stored):
                held.add(stored.record.request_id)
            else:
                found.append(stored.number)
        return found

    def _reporter(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None and error.code() in TAKEN_BACK:
                return  # for lack of time: a broker may have it
            self.errors[number] = error
            if error is None and self._heard is not None:
                self._heard()
            partition = message.partition()
            if partition is not None:
                self.where[number] = partition

        return report


def _too_large(error: KafkaError | None) -> bool:
    return error is not None and message_refusal(error) == TOO_LARGE
