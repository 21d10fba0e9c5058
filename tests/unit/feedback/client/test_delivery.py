"""Deliveries that fail, and who hears of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from feedback import (
    Client,
    DeliveryFailed,
)
from feedback.contract.states import State
from feedback.errors import DeliveryPending
from tests.support import eventually
from tests.support.client import AnsweringConsumer, FakeProducer, begin, waiting


def test_a_failed_delivery_is_raised_by_the_next_wait_for_it(
    client: Client, producer: FakeProducer
) -> None:
    producer.error = "timed out"
    first, second = client.submit("t", 1), client.submit("t", 2)
    with pytest.raises(DeliveryFailed) as caught:
        client.wait(first, 10)
    assert caught.value.failures == {first: "timed out"}
    with pytest.raises(DeliveryFailed) as caught:  # who was told is not told again
        client.flush()
    assert caught.value.failures == {second: "timed out"}
    client.flush()
    assert client.status(first) is None  # never accepted


def test_a_failed_delivery_ends_a_wait_that_runs(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    producer.error = "timed out"
    request_id = client.submit("t", 1)
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: waiting(client, request_id))
    producer.confirming.set()
    with pytest.raises(DeliveryFailed):
        wait.result(10)


def test_a_failed_delivery_ends_every_wait_for_it(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    producer.error = "timed out"
    request_id = client.submit("t", 1)
    waits = [begin(pool, client.wait, request_id, 30) for _ in range(3)]
    eventually(lambda: len(client._waits._watches.get(request_id, ())) == 3)
    producer.confirming.set()
    for wait in waits:
        with pytest.raises(DeliveryFailed, match="timed out"):
            wait.result(10)
    with pytest.raises(DeliveryFailed, match="timed out"):
        client.wait(request_id, 30)
    client.flush()  # who asks for all was told


def test_a_copy_that_fails_later_is_not_told_to_who_was_told(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    call = begin(pool, client.call, "t", 1, timeout=30, resend_after=0.05)
    eventually(lambda: len(producer._open) > 1)
    first = producer._open.pop(0)
    first(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed"), None)
    with pytest.raises(DeliveryFailed):
        call.result(10)
    producer.error = "timed out"
    producer.confirming.set()
    client.flush()
    client.close()


def test_a_resend_that_the_producer_refuses_tells_of_the_first_copy_as_well(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    call = begin(pool, client.call, "t", 1, timeout=30, resend_after=0.05)
    eventually(lambda: producer.sent)
    producer.refusal = KafkaException(KafkaError(KafkaError._FATAL, "failed", fatal=True))
    with pytest.raises(DeliveryFailed):
        call.result(10)
    producer.error = "taken back"
    producer.confirming.set()
    client.flush()


def test_sent_again_with_success_a_failure_is_forgotten(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    producer.error = "timed out"
    client.submit("t", 1, request_id="a")
    eventually(client._deliveries.failed)
    producer.error = None
    client.submit("t", 1, request_id="a")
    client.flush()
    consumer.say("a", State.DONE)
    assert client.wait("a", 5).state == "done"


@pytest.mark.parametrize("name", ["MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"])
def test_what_the_brokers_refuse_for_its_size_says_what_to_change(
    client: Client, producer: FakeProducer, name: str
) -> None:
    """They refuse what came in one set of messages, of which each one may fit."""
    producer.confirming.clear()
    client.submit("t", 1, request_id="a")
    (report,) = producer._open
    producer._open.clear()
    report(KafkaError(getattr(KafkaError, name)), None)
    with pytest.raises(DeliveryFailed, match=r"Lower batch\.size here, or raise max\.message"):
        client.flush()


def test_what_was_refused_for_its_time_is_sent_again_with_another(
    client: Client, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was an hour ahead, and was set right."""
    producer.confirming.clear()
    client.submit("t", 1, request_id="a")
    (report,) = producer._open
    producer._open.clear()
    report(KafkaError(KafkaError.INVALID_TIMESTAMP), None)
    with pytest.raises(DeliveryFailed, match=r"message\.timestamp\.after\.max\.ms of topic"):
        client.wait("a", 5)
    hour = 3600 * 10**9
    monkeypatch.setattr(client._clock, "_now", lambda: time.time_ns() - hour)
    producer.confirming.set()
    client.submit("t", 1, request_id="a")
    client.flush()

    first, again = (message["timestamp"] for message in producer.sent)
    assert again < first - 3_000_000


def test_an_answer_counts_more_than_a_delivery_report(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    # It did arrive: only the broker's reply was lost.
    producer.error = "timed out"
    producer.confirming.clear()
    client.submit("t", 1, request_id="a")
    consumer.say("a", State.DONE)
    assert client.wait("a", 5).state == "done"


def test_many_failures_are_counted_beyond_what_is_listed(
    client: Client, producer: FakeProducer
) -> None:
    producer.error = "timed out"
    producer.room = 2_000
    ids = [client.submit("t", number) for number in range(1_200)]
    eventually(lambda: client._deliveries._failures._more == 200)
    with pytest.raises(DeliveryFailed):
        client.wait(ids[-1], 5)
    with pytest.raises(DeliveryFailed, match="and 1198 others") as caught:
        client.flush()
    assert len(caught.value.failures) == 1_000
    assert caught.value.more == 199


def test_flush_says_when_time_runs_out(client: Client, producer: FakeProducer) -> None:
    producer.confirming.clear()
    client.submit("t", 1)
    with pytest.raises(DeliveryPending) as caught:
        client.flush(0.05)
    assert caught.value.count == 1
