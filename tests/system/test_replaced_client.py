"""A client that fails for good while a commit is open whose connection has broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, Producer

from consumer.config.settings import Settings
from consumer.intake.events import Answered, ConnectionLost, Event, JoinedAnew, Place
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
