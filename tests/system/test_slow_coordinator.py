"""A coordinator that is far away: a question takes longer than the loop usually waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from consumer.config.settings import Settings
from consumer.intake.events import Answered, Place
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from consumer.intake.offset_metadata import LowMark
from consumer.intake.waits import READ_BACK_TIMEOUTS
from processing.logs import get_logger
from stack import Stack
from tests.support.fake_pool import FakePool
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.waiting import eventually

LOG = get_logger("test")
ONE_WAY = 1.2 * READ_BACK_TIMEOUTS.after(100)


class CutAtCommit(Kafka):
    """Its connections break once the next commit is sent."""

    proxy: LoneBrokerProxy | None = None

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        answered = super().commit(offsets, metadata, marks)
        if self.proxy is not None:
            assert self.proxy.cut_connections()
            self.proxy = None
        return answered


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.long), "consumer"])
def test_a_connection_that_breaks_while_a_commit_is_open_does_not_stop_a_member(
    stack: Stack, topic: Callable[..., str], protocol: str
) -> None:
    name = topic()
    with LoneBrokerProxy.of(stack.kafka) as proxy:
        settings = Settings(
            kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}", kafka_topics=[name],
            kafka_group=f"g-{name}", kafka_protocol=protocol,
        )  # fmt: skip
        kafka, pool = CutAtCommit(settings, LOG), FakePool()
        loop = Loop(kafka, pool, FlowControl(1000, 1 << 20), "me", LOG)
        producer = Producer({"bootstrap.servers": stack.kafka})

        def turn_until(condition: Callable[[], object]) -> None:
            eventually(lambda: (loop.turn(), condition())[1], 90, lambda: str(loop.stats()))

        def send() -> None:
            producer.produce(name, b"{}")
            assert producer.flush(60) == 0

        loop.start()
        turn_until(lambda: loop.stats().assigned == 1)
        proxy.delay, kafka.proxy = ONE_WAY, proxy
        send()
        turn_until(lambda: loop.stats().counts.get("rejoins"))
        send()
        turn_until(lambda: {record[2] for record in pool.submitted} == {0, 1})
        assert loop.stats().counts["rejoins"] == 1
        loop.leave()
        proxy.delay = 0.0
        turn_until(lambda: loop.left)
