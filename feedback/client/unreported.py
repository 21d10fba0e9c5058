"""Messages of which a producer has not said yet what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import Final, TypeAlias

import confluent_kafka

from feedback.guarded_producer import GuardedProducer, PlainProducer

Report: TypeAlias = Callable[[confluent_kafka.KafkaError | None, object], None]
"""What librdkafka calls with what became of one message."""
Producer: TypeAlias = GuardedProducer[PlainProducer]

GIVES_UP: Final = 300.0
"""Seconds, of librdkafka's `message.timeout.ms` where nobody has set it."""


class Unreported:
    """Reports that have not been called. Not thread-safe, but for `pop`."""

    def __init__(self, served: Producer) -> None:
        """`served`: the producer whose callbacks are called."""
        self._served = served
        self._open: dict[Report, tuple[Producer, float]] = {}
        """By which each was sent, and when. Others may send with one that was handed over, too."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, report: Report, producer: Producer) -> None:
        """This is about to be sent."""
        self._open[report] = producer, time.monotonic()

    def pop(self, report: Report) -> None:
        """It was called, or nothing was sent."""
        self._open.pop(report, None)

    def all(self) -> tuple[Report, ...]:
        """As they were sent."""
        return tuple(self._open)

    def reap(self, current: Producer) -> list[Report]:
        """Forgets what no report will come of; returns what was lost.

        What a replaced producer still had has failed with it. One that reports errors alone
        (librdkafka's `delivery.report.only.error`) has delivered all where it is empty, and else
        what it would have given up by now: partitions differ, so the oldest may still be there.
        """
        if current is not self._served:
            self._served = current
            return [report for report, (by, _) in self._open.items() if by is not current]
        left = len(current.handle)  # first, as other threads may serve it meanwhile
        if not left:
            self._open.clear()
        elif len(self._open) > left:
            old = time.monotonic() - GIVES_UP
            with suppress(RuntimeError):  # a report came meanwhile: the rest goes the next time
                for report, _ in list(takewhile(lambda sent: sent[1][1] < old, self._open.items())):
                    self.pop(report)
        return []
