"""The loop between a client and a pool that do what a test says."""

from __future__ import annotations

from consumer.intake.events import Polled
from consumer.intake.flow_control import FlowControl
from consumer.intake.loop import Loop
from processing.logs import get_logger
from tests.support.consumer_records import records
from tests.support.fake_kafka import FakeKafka
from tests.support.fake_pool import FakePool

A = ("t", 0)


class Bench:
    """One partition is assigned; the clock stands still."""

    def __init__(self, max_requests: int = 100, max_bytes: int = 1 << 20) -> None:
        self.now = 100.0
        self.kafka = FakeKafka()
        self.pool = FakePool()
        self.loop = Loop(
            self.kafka, self.pool, FlowControl(max_requests, max_bytes), "me", get_logger("test"),
            clock=lambda: self.now,
        )  # fmt: skip
        self.loop.start()
        self.loop.turn()

    def arrive(self, *offsets: int) -> None:
        self.kafka.events.append(Polled(records(A, offsets)))

    def turns(self, count: int = 3) -> None:
        for _ in range(count):
            self.loop.turn()
