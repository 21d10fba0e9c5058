"""Submitting: what is sent, when, and what the store says at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest

from feedback import (
    Client,
    DeliveryFailed,
    QueueFull,
)
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import AnsweringConsumer, FakeProducer


def test_a_submitted_request_is_sent_and_accepted(
    client: Client, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    request_id = client.submit("t", {"a": 1})
    envelope = producer.envelopes()[0]
    assert producer.sent[0]["topic"] == "requests"
    assert (envelope.id, envelope.type, envelope.payload) == (request_id, "t", b'{"a":1}')
    assert envelope.reply_to == client._channel
    status = eventually(lambda: client.status(request_id))
    assert status is not None
    assert (status.state, status.v, status.attempt) == ("accepted", "000001", 0)
    assert status.fingerprint == fingerprint("t", b'{"a":1}').hex()
    client.flush()


def test_accepted_lives_as_long_as_an_answer_may_take(producer: FakeProducer) -> None:
    now = [0.0]
    store = MemoryStatusStore(lambda: now[0])
    with Client(producer, store, "requests", answer_timeouts={"quick": 10}) as client:
        client.submit("quick", 1, request_id="a")
        client.submit("quick", 1, request_id="b", delay=100)
        client.submit("other", 1, request_id="c")
        # The client also shows what it has not written yet, whose time would begin later.
        eventually(lambda: None not in store.read(["a", "b", "c"]))
        alive = []
        for moment in (9, 20, 109, 120, 3599, 3602):
            now[0] = moment
            alive.append([status is not None for status in client.statuses(["a", "b", "c"])])
    assert alive == [
        [True, True, True],
        [False, True, True],
        [False, True, True],
        [False, False, True],
        [False, False, True],
        [False, False, False],
    ]


def test_accepted_never_replaces_a_newer_status(
    client: Client, consumer: AnsweringConsumer
) -> None:
    consumer.say("a", State.FAILED)
    client.submit("t", 1, request_id="a")
    client.flush()
    client._sender.flush(5)
    assert [status and status.state for status in client.statuses(["a", "b"])] == ["failed", None]


def test_the_hint_channel_is_heard_before_the_first_send(producer: FakeProducer) -> None:
    class Recorder(MemoryStatusStore):
        def subscribe(self, channel: str) -> Any:
            subscribed.append((channel, len(producer.sent)))
            return super().subscribe(channel)

    subscribed: list[tuple[str, int]] = []
    with Client(producer, Recorder(), "requests", prefix="mine") as client:
        for _ in range(3):
            client.submit("t", 1)
        assert subscribed == [(client._channel, 0)]
        assert subscribed[0][0].startswith("mine:hints:")


def test_without_hints_a_header_is_saved_and_waits_work(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    with Client(producer, store, "requests", hints=False) as client:
        request_id = client.submit("t", 1)
        assert producer.envelopes()[0].reply_to is None
        AnsweringConsumer(store, producer).say(request_id, State.DONE)
        assert client.wait(request_id, 5).state == "done"


def test_a_full_queue_waits_a_little_and_is_refused(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    producer.room = 2
    client.submit("t", 1)
    client.submit("t", 2)
    with pytest.raises(QueueFull) as caught:
        client.submit("t", 3, request_id="third")
    assert caught.value.id == "third"
    # Room that comes in time is taken.
    client._queue_timeout = 3600
    waiting = pool.submit(client.submit, "t", 4)
    eventually(lambda: client._deliveries._wakes)
    producer.confirming.set()
    assert waiting.result(10)
    assert len(producer.sent) == 3


def test_a_payload_too_large_for_kafka_says_so(client: Client, producer: FakeProducer) -> None:
    code = confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    producer.refusal = confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))
    with pytest.raises(ValueError, match="too large for Kafka"):
        client.submit("t", "x" * 100)
    producer.refusal = confluent_kafka.KafkaException(
        confluent_kafka.KafkaError(confluent_kafka.KafkaError._FATAL)
    )
    with pytest.raises(DeliveryFailed):
        client.submit("t", 1)


def test_sent_again_a_request_keeps_the_time_of_its_first_send(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    client.submit("t", {"a": 1}, request_id="a")
    client.submit("t", 1, request_id="b")
    first = producer.sent[0]["timestamp"]
    eventually(lambda: time.time_ns() // 1_000_000 > first + 1)
    client.submit("t", b'{ "a" : 1 }', request_id="a")
    consumer.say("a", State.DONE)
    client.call("t", {"a": 1}, request_id="a", timeout=5)
    client.submit("t", {"a": 1}, request_id="a", delay=1)
    assert [sent["timestamp"] for sent in producer.sent[2:]] == [first] * 3
    # Another payload, or another id, is another request.
    client.submit("t", {"a": 2}, request_id="a")
    client.submit("other", 1, request_id="b")
    client.submit("t", {"a": 1})
    assert min(sent["timestamp"] for sent in producer.sent[5:]) > first


def test_submitting_with_the_store_away_sends(
    client: Client, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    store.available = False
    for number in range(100):
        client.submit("t", number, request_id=f"n{number}")
    assert len(producer.sent) == 100
    store.available = True
    eventually(lambda: client._sender.stats().written == 100)
