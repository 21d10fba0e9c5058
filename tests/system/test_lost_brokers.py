"""Clients that are told of no brokers by one that has just started.

With `metadata.recovery.strategy=none` one such answer is enough for librdkafka 2.16 never to look
for a broker again; as it is by default, about a third do not.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from consumer.config.settings import Settings
from consumer.intake.events import JoinedAnew, Polled
from consumer.intake.kafka import Kafka
from processing.logs import get_logger
from stack import Stack
from tests.support.brokerless_proxy import BrokerlessProxy
from tests.support.waiting import eventually

MEMBERS = 2
"""Each in a group of its own."""
OUTAGES = 6
"""At most: until one has joined anew, which takes one or two where the machine is not busy."""


class Member:
    """One client, as the main process has it."""

    def __init__(self, broker: str, topic: str) -> None:
        settings = Settings(
            kafka_bootstrap_servers=broker, kafka_topics=[topic],
            kafka_group=f"g-{uuid.uuid4().hex[:12]}", app="none:none",
            kafka_properties={"metadata.recovery.strategy": "none"},
        )  # fmt: skip
        self.kafka = Kafka(settings, get_logger("test"))
        self.kafka.subscribe()
        self.heard: list[bytes] = []
        self.joined_anew = 0

    def poll(self) -> None:
        for event in self.kafka.poll(10, 0.02):
            if isinstance(event, Polled):
                self.heard += [record[2] for record in event.records]
            self.joined_anew += isinstance(event, JoinedAnew)


@pytest.fixture
def broker(stack: Stack) -> Iterator[BrokerlessProxy]:
    with BrokerlessProxy.of(stack.kafka) as proxy:
        yield proxy


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_member_that_has_lost_its_brokers_joins_anew(
    broker: BrokerlessProxy, stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic()
    members = [Member(f"127.0.0.1:{broker.port}", name) for _ in range(MEMBERS)]
    direct = Producer({"bootstrap.servers": stack.kafka})
    sent = 0

    def all_hear() -> bool:
        for member in members:
            member.poll()
        return all(len(member.heard) >= sent for member in members)

    def send() -> None:
        nonlocal sent
        direct.produce(name, b"{}", headers=[("ce_id", f"r{sent}"), ("ce_type", "t")])
        assert direct.flush(30) == 0
        sent += 1

    def told() -> str:
        """Messages that each has heard, and how often it has joined anew."""
        return str([(len(member.heard), member.joined_anew) for member in members])

    def nobody_is_connected() -> bool:
        all_hear()
        return broker.connections == 0

    send()
    eventually(all_hear, 60, told)
    while not any(member.joined_anew for member in members):
        assert sent <= OUTAGES, told()
        broker.cut()
        eventually(nobody_is_connected, 30)
        broker.brokerless = 2 * MEMBERS  # those who look for topics may get some
        broker.mend()
        send()
        eventually(all_hear, 90, told)
    for member in members:
        member.kafka.close()
