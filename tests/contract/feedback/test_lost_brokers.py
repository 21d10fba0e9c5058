"""A broker that has just started names no broker, and a client of librdkafka looks for none again:
each part that has one makes another.

Where clients are not to go back to their bootstrap servers, one such answer is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from feedback import Client, DeliveryFailed
from feedback.client.results import Results
from feedback.client.subscriptions import Subscriptions
from feedback.errors import ResultsFailed, StoreUnavailable
from feedback.journal.result_outbox import ResultRecord, StoredResult
from feedback.outbox.relay.records import RecordSource
from feedback.status.memory_store import MemoryStatusStore
from processing.maintenance.result_producer import (
    PROBE_TIMEOUT,
    ResultProducer,
    connect,
    result_producer,
)
from stack import Stack
from tests.support.brokerless_proxy import BrokerlessProxy
from tests.support.waiting import eventually

NOW = datetime.now(UTC)
LATE = 60.0
GROUP = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}


class Brokers(BrokerlessProxy):
    """What leads to them, and what clients say of them."""

    down = 0
    """How often a client has told whom it was given that all are down."""

    @property
    def properties(self) -> dict[str, Any]:
        """Those of a client that a single answer without brokers is enough for."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "metadata.recovery.strategy": "none",
            "error_cb": self.heard,
        }

    def heard(self, error: KafkaError) -> None:
        self.down += error.code() == KafkaError._ALL_BROKERS_DOWN

    def be_lost(self, client: Any, serve: Callable[[], object]) -> None:
        """Goes down, and comes back so that this one never looks for it again."""
        before = self.down
        self.cut()
        eventually(lambda: (serve(), self.down > before)[1], LATE)
        self.brokerless = 1
        self.mend()
        eventually(lambda: (serve(), not answers(client) and not self.brokerless)[1], LATE)


def answers(client: Any) -> bool:
    try:
        client.list_topics(timeout=1.0)
    except KafkaException:
        return False
    return True


@pytest.fixture
def brokers(stack: Stack) -> Iterator[Brokers]:
    with Brokers.of(stack.kafka) as proxy:
        yield proxy


def nothing() -> None:
    """Its client is served by a thread of its own."""


def record(number: int) -> StoredResult:
    return StoredResult(number, NOW, ResultRecord(f"r-{number}", "t", "done", "ok", b"1"))


def write(stack: Stack, topic: str, numbers: range) -> None:
    """By who has not lost them."""
    there = {"bootstrap.servers": stack.kafka}
    assert not missing(ResultProducer(topic, partial(connect, there)), numbers)


def missing(producer: ResultProducer, numbers: range) -> set[int]:
    return set(numbers) - set(producer.deliver([record(n) for n in numbers]).arrived)


def test_a_client_goes_on_with_another_producer(
    brokers: Brokers, topic: Callable[..., str]
) -> None:
    store = MemoryStatusStore()
    with Client(brokers.properties, store, topic(), hints=False) as client:
        client.submit("t", 1)
        client.flush(LATE)
        deaf = client._deliveries._producer.current
        brokers.be_lost(deaf.handle, nothing)
        lost = client.submit("t", 2)
        with pytest.raises(DeliveryFailed, match="finds no broker any more"):
            client.wait(lost, 25.0)  # far less than it tries
        client.submit("t", 2, request_id=lost)
        client.flush(LATE)
        status = client.status(lost)
        assert status is not None
        assert status.state == "accepted"


@pytest.mark.long
def test_result_records_go_on_with_another_producer(
    brokers: Brokers, topic: Callable[..., str]
) -> None:
    producer = result_producer(topic(), brokers.properties)
    assert not missing(producer, range(3))
    deaf = producer._producer
    brokers.be_lost(deaf.handle, lambda: deaf.poll(0))
    eventually(producer.reachable, LATE)
    assert producer._producer is not deaf
    assert not missing(producer, range(3, 6))


def test_a_producer_of_result_records_that_connects_slowly_connects(
    brokers: Brokers, topic: Callable[..., str]
) -> None:
    """It begins before it is asked, and goes on when whoever asked has given up."""
    brokers.delay = PROBE_TIMEOUT / 3  # what is asked first is answered after four of them
    producer = result_producer(topic(), brokers.properties)
    assert not producer.reachable()
    eventually(producer.reachable, LATE)


@pytest.mark.long
@pytest.mark.parametrize("group", [None, "some"])
def test_a_reader_of_results_goes_on_where_it_was(
    brokers: Brokers, stack: Stack, topic: Callable[..., str], group: str | None
) -> None:
    name = topic(partitions=2)
    subscriptions = Subscriptions({**brokers.properties, **GROUP}, name)

    def opened() -> Results | None:
        try:
            return subscriptions.open(group and f"{group}-{name}", None, from_beginning=False)
        except ResultsFailed:
            return None  # a topic this new not every broker knows, nor who leads it

    results = eventually(opened, LATE)
    assert results is not None
    came: list[str] = []

    def all_of(count: int) -> bool:
        while (result := results.poll(0.1)) is not None:
            came.append(result.id)
        return len(came) >= count

    write(stack, name, range(10))
    eventually(lambda: all_of(10), LATE, lambda: str(came))
    deaf = results._source._consumer
    brokers.be_lost(deaf, lambda: all_of(0))
    write(stack, name, range(10, 20))
    eventually(lambda: all_of(20), LATE, lambda: str(came))
    assert results._source._consumer is not deaf
    write(stack, name, range(20, 30))
    eventually(lambda: all_of(30), LATE, lambda: str(came))
    assert sorted(came) == sorted(f"r-{n}" for n in range(30))
    results.close()


@pytest.mark.long
def test_a_relay_reads_on_with_another_consumer(
    brokers: Brokers, stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic()
    source = RecordSource(name, f"relay-{name}", {**brokers.properties, **GROUP})
    came: list[str] = []

    def all_of(count: int) -> bool:
        try:
            came.extend(result.id for result in source.poll(0.1))
            source.commit(source.position())
        except StoreUnavailable:
            source.close()  # as the loop does
        return len(set(came)) >= count

    write(stack, name, range(10))
    eventually(lambda: all_of(10), LATE, lambda: str(came))
    deaf = source._consumer
    brokers.be_lost(deaf, lambda: all_of(0))
    write(stack, name, range(10, 20))
    eventually(lambda: all_of(20), LATE, lambda: str(came))
    assert source._consumer is not deaf
    source.close()
