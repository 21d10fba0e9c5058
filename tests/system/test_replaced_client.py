"""A client that fails for good: with a commit open whose connection has broken, amid messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, Producer

from consumer.config.settings import Settings
from consumer.intake.client_calls import AT_ONCE
from consumer.intake.events import Answered, ConnectionLost, Event, JoinedAnew, Place, Polled
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from consumer.intake.offset_metadata import LowMark
from processing.logs import get_logger
from stack import Stack
from tests.support.fake_pool import FakePool
from tests.support.fatal import fail_fatally
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.waiting import eventually

LOG = get_logger("test")
GIVEN_UP = f"ConsumerGroupHeartbeat: {KafkaError(KafkaError.INVALID_REQUEST).str()}"


class FailsAtBreak(Kafka):
    """Its connections break at the next commit, and its client fails once that was heard."""

    proxy: LoneBrokerProxy | None = None
    failed = False

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        if self.proxy is not None and not self.failed:
            self.proxy.hang()
        answered = super().commit(offsets, metadata, marks)
        if self.proxy is not None and not self.failed:
            self.proxy.cut_connections()
        return answered

    def poll(self, most: int, timeout: float) -> list[Event]:
        events = super().poll(most, timeout)
        if self.proxy is not None:
            kinds = set(map(type, events))
            if ConnectionLost in kinds and not self.failed:
                self.failed = True
                fail_fatally(self._consumer, GIVEN_UP)
            if JoinedAnew in kinds:
                self.proxy.mend()
        return events


def test_it_joins_once(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic()
    with LoneBrokerProxy.of(stack.kafka) as proxy:
        settings = Settings(
            kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}", kafka_topics=[name],
            kafka_group=f"g-{name}", kafka_protocol="consumer",
        )  # fmt: skip
        kafka, pool = FailsAtBreak(settings, LOG), FakePool()
        loop = Loop(kafka, pool, FlowControl(1000, 1 << 20), "me", LOG)
        producer = Producer({"bootstrap.servers": stack.kafka})

        def turn_until(condition: Callable[[], object]) -> None:
            eventually(lambda: (loop.turn(), condition())[1], 90, lambda: str(loop.stats()))

        def send() -> None:
            producer.produce(name, b"{}")
            assert producer.flush(60) == 0

        loop.start()
        turn_until(lambda: loop.stats().assigned == 1)
        kafka.proxy = proxy
        send()
        turn_until(lambda: kafka.failed)
        send()
        turn_until(lambda: {record[2] for record in pool.submitted} == {0, 1})
        assert loop.fatal is None
        assert loop.stats().counts["rejoins"] == 1
        loop.leave()
        turn_until(lambda: loop.left)


class HungAtCommit(Kafka):
    """Its broker hangs at a commit, and then its client fails."""

    proxy: LoneBrokerProxy | None = None

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        proxy, self.proxy = self.proxy, None
        if proxy is not None:
            proxy.hang()
        answered = super().commit(offsets, metadata, marks)
        if proxy is not None:
            fail_fatally(self._consumer, GIVEN_UP)
        return answered


def test_its_broker_need_not_answer_any_more(stack: Stack, topic: Callable[..., str]) -> None:
    """What it waits for does not keep the loop, which tends all else, too."""
    name, end = topic(), threading.Event()
    with LoneBrokerProxy.of(stack.kafka) as proxy:
        settings = Settings(
            kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}", kafka_topics=[name],
            kafka_group=f"g-{name}", kafka_protocol="consumer",
            # What waits for the broker waits beyond the end of this test.
            kafka_properties={"socket.timeout.ms": 280_000},
        )  # fmt: skip
        kafka, pool = HungAtCommit(settings, LOG), FakePool()
        loop = Loop(kafka, pool, FlowControl(1000, 1 << 20), "me", LOG)
        producer = Producer({"bootstrap.servers": stack.kafka})

        now = loop.stats()

        def turn() -> None:
            nonlocal now
            while not end.is_set():
                loop.turn()
                now = loop.stats()  # a client that is polled is asked by the same thread alone

        def told() -> str:
            return str(now)

        loop.start()
        turning = threading.Thread(target=turn)
        turning.start()
        try:
            eventually(lambda: now.assigned == 1, 90, told)
            kafka.proxy = proxy
            producer.produce(name, b"{}")
            assert producer.flush(60) == 0
            eventually(lambda: now.counts.get("rejoins"), 30, told)
            proxy.mend()
            eventually(lambda: pool.submitted, 90, told)
        finally:
            proxy.mend()
            end.set()
            turning.join()
        loop.leave()
        eventually(lambda: (loop.turn(), loop.left)[1], 90)


def test_it_may_fail_amid_messages(stack: Stack, topic: Callable[..., str]) -> None:
    """What is still to be taken then is asked of the client that takes its place."""
    name = topic()
    settings = Settings(
        kafka_bootstrap_servers=stack.kafka, kafka_topics=[name], kafka_group=f"g-{name}",
        kafka_protocol="consumer",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": stack.kafka, "linger.ms": 1000})
    # Two are taken alone; with the others the failure makes as many as are taken by one call.
    for _ in range(2 + AT_ONCE - 1):
        producer.produce(name, b"{}")
    assert producer.flush(60) == 0
    kafka, events = Kafka(settings, LOG), list[Event]()
    kafka.subscribe()

    def polled(most: int) -> int:
        events.extend(kafka.poll(most, 0.1))
        return sum(len(event.records) for event in events if isinstance(event, Polled))

    eventually(lambda: polled(1) == 1, 60)
    first = kafka._consumer
    fail_fatally(first, GIVEN_UP)
    eventually(lambda: polled(1000) and kafka._consumer is not first, 60)
    assert polled(1000) == 2 + AT_ONCE - 1
    assert JoinedAnew in set(map(type, events))
    kafka.close()
