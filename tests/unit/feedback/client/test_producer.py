"""A producer that fails for good, and the one that takes its place."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from feedback import AsyncClient, Client, DeliveryFailed, QueueFull
from feedback.broker_probe import BrokerProbe
from feedback.client import producer
from feedback.client.delivery import Deliveries
from feedback.client.pending import Submission
from feedback.client.producer import LastingProducer
from feedback.errors import ConfigurationError
from feedback.guarded_producer import GuardedProducer
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import FakeProducer, drafted
from tests.support.fatal import fail_fatally
from tests.support.watched_lock import WatchedLock

NO_BROKER = "127.0.0.1:1"
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "epoch lost", fatal=True)


class FailedProducer(FakeProducer):
    """One that says so once."""

    def __init__(self) -> None:
        super().__init__()
        self.told = False
        self.refusal = KafkaException(KafkaError(KafkaError._FATAL))

    def poll(self, timeout: float) -> int:
        if not self.told:
            self.told = True
            raise KafkaException(FATAL)
        return super().poll(timeout)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("servers", [[NO_BROKER, "127.0.0.1:2"], (NO_BROKER, " 127.0.0.1:2")])
def test_servers_may_be_a_list(
    kind: type[Client | AsyncClient], servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def connect(kafka: Any, *_: Any) -> FakeProducer:
        given.append(kafka["bootstrap.servers"])
        return FakeProducer()

    monkeypatch.setattr(producer, "connect", connect)
    kind(servers, MemoryStatusStore(), "requests", hints=False)
    assert given == [f"{NO_BROKER},127.0.0.1:2"]


@pytest.mark.parametrize("servers", [[], ["a:1", ""], ["a:1", 5]])
def test_a_list_of_something_else_is_refused(servers: Any) -> None:
    with pytest.raises(ConfigurationError, match="names each as host:port"):
        Client(servers, MemoryStatusStore(), "requests", hints=False)


def test_whoever_waits_for_what_it_had_is_told() -> None:
    client = Client(NO_BROKER, MemoryStatusStore(), "requests", hints=False)
    ids = [client.submit("t", number) for number in range(3)]
    failed = client._deliveries._producer.current.handle

    fail_fatally(failed, "as it must be")

    said = r"had failed before \(test_fatal_error: as it must be\)"
    with pytest.raises(DeliveryFailed, match=said):
        client.wait(ids[0], 30)
    with pytest.raises(DeliveryFailed, match=said) as caught:
        client.flush(30)
    assert set(caught.value.failures) == set(ids[1:])
    eventually(lambda: client._deliveries._producer.current.handle is not failed)
    last = client.submit("t", 4)
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0)
    assert set(caught.value.failures) == {last}


def test_one_that_was_given_ready_made_has_no_other() -> None:
    producer = FailedProducer()
    client = Client(producer, MemoryStatusStore(), "requests", hints=False)
    with pytest.raises(DeliveryFailed, match="Fatal error"):
        client.submit("t", 1)
    producer.refusal = None
    eventually(lambda: producer.told)
    client.submit("t", 2)
    client.flush(30)  # reports are served all the same
    client.close()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_finds_no_producer_in_time_is_told_why(kind: type[Client | AsyncClient]) -> None:
    async def sent() -> None:
        client = kind(FakeProducer(), MemoryStatusStore(), "requests", queue_timeout=0.05)
        client._deliveries._producer = LastingProducer(FailedProducer(), FailedProducer)
        with pytest.raises(QueueFull, match=r"producer has failed \(.+\), and no other"):
            _ = not isinstance(sending := client.submit("t", 1), str) and await sending
        if (closing := client.close()) is not None:
            await closing

    asyncio.run(sent())


def test_one_after_the_other_they_are_made_more_seldom() -> None:
    now = 100.0
    made: list[FakeProducer | ConfigurationError] = [
        FailedProducer(),
        ConfigurationError("no such file"),
        FakeProducer(),
    ]

    def another() -> FakeProducer:
        one = made.pop(0)
        if isinstance(one, ConfigurationError):
            raise one
        return one

    lasting = LastingProducer(FailedProducer(), another, clock=lambda: now)
    lasting.serve(0.0)
    assert len(made) == 2
    for left in (1, 0):
        lasting.serve(0.0)
        lasting.serve(0.0)
        assert len(made) == left + 1
        now += 5.0
        lasting.serve(0.0)
        assert len(made) == left
    assert lasting.current.failure is None


def test_a_producer_whose_messages_are_confirmed_has_not_lost_its_brokers() -> None:
    made, probe = FakeProducer(), BrokerProbe({})
    made.confirming.clear()
    client = Client(made, MemoryStatusStore(), "requests", hints=False)
    client._deliveries._producer = LastingProducer(made, None, probe=probe)
    probe.heard(ALL_DOWN)
    client.submit("t", 1)
    assert probe._contact.doubtful
    made.confirming.set()
    client.close()
    assert not probe._contact.doubtful


class Lost(BrokerProbe):
    """It is lost as soon as somebody produces."""

    def __init__(self, producing: threading.Event) -> None:
        super().__init__({})
        self._producing = producing

    def lost(self, client: Any) -> bool:
        return self._producing.is_set()


def test_what_is_being_handed_over_when_a_producer_is_given_up_is_told_of() -> None:
    producing, go_on = threading.Event(), threading.Event()

    class Slow(FakeProducer):
        """Takes a message once somebody waits for its end, or it has come."""

        def produce(self, topic: str, **arguments: Any) -> None:
            producing.set()
            assert go_on.wait(60)
            super().produce(topic, **arguments)

        def purge(self) -> None:
            super().purge()
            go_on.set()

    slow = Slow()
    slow.confirming.clear()
    lasting = LastingProducer(slow, FakeProducer, probe=Lost(producing))
    watched: Any = WatchedLock(lasting.lock, go_on)
    lasting.lock = watched
    told: list[Submission] = []
    deliveries = Deliveries(lasting, told.append)
    message, submission = drafted("t", 1)
    assert deliveries.offer(message, submission)
    eventually(lambda: told == [submission])
    assert submission.failure is not None
    deliveries.close(10)
    with pytest.raises(DeliveryFailed):
        deliveries.raise_failures()


def test_what_a_replaced_producer_never_reported_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer, "_IN_FLIGHT", 0.0)
    monkeypatch.setattr(GuardedProducer, "end", lambda _: 1)  # its time is over
    producing = threading.Event()
    kept = FakeProducer()
    kept.confirming.clear()
    told: list[Submission] = []
    deliveries = Deliveries(LastingProducer(kept, FakeProducer, probe=Lost(producing)), told.append)
    message, submission = drafted("t", 1)
    assert deliveries.offer(message, submission)
    producing.set()
    assert eventually(lambda: told == [submission])
    assert deliveries.drain(10) == 0
    with pytest.raises(DeliveryFailed, match="had failed before"):
        deliveries.raise_failures()
    deliveries.close(10)
