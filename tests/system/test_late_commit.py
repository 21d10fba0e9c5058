"""Bytes of a commit that come to the broker when the process that sent them has joined anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Producer

from consumer.config.settings import Settings
from consumer.intake.events import Answered, Place
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from consumer.intake.offset_metadata import LowMark
from processing.logs import get_logger
from stack import Stack
from tests.conftest import TopicFactory
from tests.support.committed_offsets import landed
from tests.support.fake_pool import FakePool
from tests.support.late_commit_proxy import LateCommitProxy
from tests.support.waiting import eventually

LOG = get_logger("test")


class BrokenAtCommit(Kafka):
    """The proxy keeps its next commit back, and breaks its connections."""

    proxy: LateCommitProxy | None = None

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        proxy, self.proxy = self.proxy, None
        if proxy is not None:
            proxy.keep = True
        answered = super().commit(offsets, metadata, marks)
        if proxy is not None:
            eventually(lambda: proxy.kept)
            assert proxy.cut_connections()
        return answered


@pytest.fixture
def proxy(stack: Stack) -> Iterator[LateCommitProxy]:
    with LateCommitProxy.of(stack.kafka) as proxy:
        yield proxy


@pytest.mark.parametrize("static, leave_lost", [(False, True), (True, False), (True, True)])
def test_bytes_that_come_after_a_rejoin_are_void(
    stack: Stack, topic: TopicFactory, proxy: LateCommitProxy, *, static: bool, leave_lost: bool
) -> None:
    """Also where the broker did not hear of the member leaving, and a static one keeps its name."""
    name = topic()
    settings = Settings(
        kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}", kafka_topics=[name],
        kafka_group=f"g-{name}", kafka_protocol="consumer",
        kafka_properties={"group.instance.id": "one"} if static else {},
    )  # fmt: skip
    kafka, pool = BrokenAtCommit(settings, LOG), FakePool()
    loop = Loop(kafka, pool, FlowControl(1000, 1 << 20), "me", LOG)
    producer = Producer({"bootstrap.servers": stack.kafka})

    def turn_until(condition: Callable[[], object]) -> None:
        eventually(lambda: (loop.turn(), condition())[1], 90, lambda: str(loop.stats()))

    def send(offset: int) -> None:
        producer.produce(name, b"{}")
        assert producer.flush(60) == 0
        turn_until(lambda: offset in {record[2] for record in pool.submitted})

    loop.start()
    turn_until(lambda: loop.stats().assigned == 1)
    send(0)
    kafka.proxy, proxy.lose_leave = proxy, leave_lost
    send(1)
    turn_until(lambda: loop.stats().counts["rejoins"])
    send(2)
    turn_until(lambda: loop.settled)
    assert proxy.leaves_lost == leave_lost
    proxy.bring()
    assert landed(stack.kafka, settings.kafka_group, name)[-1].offset == 3
    assert loop.fatal is None
    loop.leave()
    turn_until(lambda: loop.left)
