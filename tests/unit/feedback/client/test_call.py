"""Calling: submit, wait, send again."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError

from feedback import (
    Client,
    DeliveryFailed,
    QueueFull,
    WaitTimeout,
)
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import MAX_RUN, State
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import AnsweringConsumer, FakeProducer, answering, begin, waiting


def test_a_call_returns_the_answer(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    answering(producer, [lambda name: consumer.say(name, State.DONE, result=b'{"n":1}')])
    status = client.call("t", {"a": 1}, timeout=10, key="k", run_timeout=3)
    assert status.result == {"n": 1}
    assert (producer.envelopes()[0].key, producer.envelopes()[0].options.timeout) == (b"k", 3)
    assert len(producer.sent) == 1


def test_a_call_sends_the_same_message_again(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    def silent(name: str) -> None: ...

    answering(producer, [silent, silent, silent, lambda name: consumer.say(name, State.DONE)])
    assert client.call("t", 1, timeout=10, resend_after=0.1).state == "done"
    assert len(producer.sent) == 4
    first = {name: value for name, value in producer.sent[0].items() if name != "on_delivery"}
    for again in producer.sent[1:]:
        assert {name: value for name, value in again.items() if name != "on_delivery"} == first


def test_a_request_that_waits_is_not_sent_again_before_it_is_due(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    retry_at = datetime.now(UTC) + timedelta(seconds=60)
    answering(producer, [lambda name: consumer.say(name, State.WAITING, retry_at=retry_at)])
    with pytest.raises(WaitTimeout) as caught:
        client.call("t", 1, timeout=0.6, resend_after=0.1)
    assert caught.value.status is not None
    assert caught.value.status.state == "waiting"
    assert len(producer.sent) == 1


@pytest.mark.parametrize("code", ["shutdown", "database_unavailable"])
def test_a_call_sends_again_after_a_consumer_could_not_run_it(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer, code: str
) -> None:
    answering(
        producer,
        [
            lambda name: consumer.say(name, State.FAILED, 1, code=code),
            lambda name: consumer.say(name, State.FAILED, 2, code=code),
            lambda name: consumer.say(name, State.DONE, 1),
        ],
    )
    # The gaps are 1 s doubling, but never longer than resend_after.
    assert client.call("t", 1, timeout=20, resend_after=0.2).state == "done"
    assert len(producer.sent) == 3


def test_after_refusals_the_journals_failure_answers_though_its_run_is_lower(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    answering(
        producer,
        [
            lambda name: consumer.say(name, State.FAILED, 5, code="database_unavailable"),
            lambda name: consumer.say(name, State.FAILED, 1, code="handler_error", error="no"),
        ],
    )
    status = client.call("t", 1, timeout=10, resend_after=0.1)
    assert (status.code, status.run, status.error) == ("handler_error", 1, "no")


@pytest.mark.parametrize("state", ["failed", "in_doubt", "dead", "rejected", "cancelled"])
def test_a_call_returns_every_other_settled_state(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer, state: str
) -> None:
    answering(producer, [lambda name: consumer.say(name, State(state), code="some_code")])
    assert client.call("t", 1, timeout=10).state == state
    assert len(producer.sent) == 1


def test_a_call_ignores_a_failure_from_before(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    consumer.say("a", State.FAILED, 2, code="handler_error", fingerprint=fingerprint("t", b"1"))
    answering(producer, [lambda name: consumer.say(name, State.FAILED, 3, code="handler_error")])
    assert client.call("t", 1, request_id="a", timeout=10).run == 3


def test_beyond_the_last_run_number_a_later_failure_is_an_answer(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    of_payload = fingerprint("t", b"1")
    consumer.say("a", State.FAILED, MAX_RUN, code="handler_error", fingerprint=of_payload)
    before = client.status("a")
    assert before is not None
    answering(producer, [lambda name: consumer.say(name, State.FAILED, MAX_RUN + 1, code="other")])
    status = client.call("t", 1, request_id="a", timeout=10)
    assert (status.code, status.at > before.at) == ("other", True)


@pytest.mark.parametrize(
    "state,run", [("done", 2), ("in_doubt", 2), ("failed", 2), ("in_doubt", 1)]
)
def test_a_call_waits_for_what_becomes_of_a_doubt_from_before(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer, state: str, run: int
) -> None:
    of_payload = fingerprint("t", b"1")
    consumer.say("a", State.IN_DOUBT, 1, code="timeout", fingerprint=of_payload)
    doubted = client.status("a")
    assert doubted is not None
    answering(producer, [lambda name: consumer.say(name, State(state), run, code="found_out")])

    status = client.call("t", 1, request_id="a", timeout=10)

    assert (status.state, status.run, status.code) == (state, run, "found_out")
    assert status.at > doubted.at


def test_a_doubt_that_nobody_asked_about_is_no_answer(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    consumer.say("a", State.IN_DOUBT, 1, code="timeout", fingerprint=fingerprint("t", b"1"))

    with pytest.raises(WaitTimeout) as caught:
        client.call("t", 1, request_id="a", timeout=0.3)

    assert caught.value.status is not None
    assert caught.value.status.state == "in_doubt"


def test_a_call_that_brokers_refuse_raises_at_once(client: Client, producer: FakeProducer) -> None:
    producer.error, producer.code = "not allowed", KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(DeliveryFailed, match="not allowed"):
        client.call("t", 1, timeout=math.inf)
    assert len(producer.sent) == 1


def test_a_call_sends_again_what_no_broker_confirmed_in_time(
    client: Client,
    producer: FakeProducer,
    consumer: AnsweringConsumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = producer._report

    def be_back_after_one(said: str | None) -> int:
        if reported := report(said):
            producer.error = None
        return reported

    monkeypatch.setattr(producer, "_report", be_back_after_one)
    producer.error = "timed out"
    answering(producer, [lambda _: None, lambda name: consumer.say(name, State.DONE)])
    assert client.call("t", 1, timeout=60, resend_after=50).state == "done"
    first, again = ({k: v for k, v in one.items() if k != "on_delivery"} for one in producer.sent)
    assert first == again
    client.close()  # which has nothing to tell


def test_a_call_that_no_broker_confirms_raises_when_its_time_is_over(
    client: Client, producer: FakeProducer
) -> None:
    producer.error = "timed out"
    with pytest.raises(DeliveryFailed, match="timed out"):
        client.call("t", 1, timeout=0.5)
    client.close()  # who waited was told


def test_a_wait_that_is_over_while_no_broker_has_confirmed_it_says_so(
    client: Client, producer: FakeProducer
) -> None:
    producer.confirming.clear()
    with pytest.raises(WaitTimeout, match=r"No broker has confirmed it yet.*bootstrap\.servers"):
        client.call("t", 1, request_id="a", timeout=0.1)
    with pytest.raises(WaitTimeout, match="No broker has confirmed it yet"):
        client.wait("a", 0.1)
    with pytest.raises(WaitTimeout, match="a consumer runs"):
        client.wait("of somebody else", 0.1)
    producer.confirming.set()
    client.flush()
    with pytest.raises(WaitTimeout, match="a consumer runs"):
        client.wait("a", 0.1)


def test_a_resend_that_fails_changes_nothing_for_the_first(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer
) -> None:
    def fail_the_next(id: str) -> None:
        eventually(lambda: client.status(id))
        producer.error = "timed out"

    def answer(id: str) -> None:
        eventually(lambda: not len(producer))
        consumer.say(id, State.DONE)

    answering(producer, [fail_the_next, answer])
    assert client.call("t", 1, timeout=10, resend_after=0.2).state == "done"
    client.flush()


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": -1}, {"timeout": 5, "resend_after": 0}]
)
def test_a_call_needs_time(client: Client, producer: FakeProducer, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        client.call("t", 1, **options)
    assert not producer.sent


def test_a_call_without_a_time_out_takes_that_of_its_type(
    store: MemoryStatusStore, producer: FakeProducer
) -> None:
    with Client(producer, store, "requests", answer_timeouts={"t": 0.3}) as client:
        with pytest.raises(WaitTimeout):
            client.call("t", 1)
        assert len(producer.sent) == 3  # at once, after 0.1 s and after 0.2 s


def test_a_resend_for_which_there_is_no_room_does_not_end_the_call(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer, pool: ThreadPoolExecutor
) -> None:
    """Its first copy is still in the queue that is full, or was answered meanwhile."""
    client._queue_timeout = 3600
    producer.confirming.clear()
    call = begin(pool, client.call, "t", 1, timeout=60, request_id="a", resend_after=0.1)
    eventually(lambda: producer.sent)
    producer.room = 0
    eventually(lambda: producer.refused > 1)
    consumer.say("a", State.DONE)
    assert call.result(10).state == "done"


def test_a_wait_may_last_for_ever(
    store: MemoryStatusStore, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    with Client(producer, store, "requests", answer_timeouts={"t": math.inf}) as client:
        consumer = AnsweringConsumer(store, producer)
        for request_id in ("a", "b"):  # the thread that hears of the first one goes on
            client.submit("t", 1, request_id=request_id)
            eventually(lambda: store.read([request_id])[0])  # noqa: B023 - called at once
        waits = [begin(pool, client.wait, "a"), begin(pool, client.wait, "b", math.inf)]
        eventually(lambda: len(client._waits._watches) == 2)
        for request_id in ("a", "b"):
            consumer.say(request_id, State.DONE)
        assert [wait.result(10).state for wait in waits] == ["done", "done"]


def test_a_call_is_bounded_also_when_the_queue_is_full(
    client: Client, producer: FakeProducer
) -> None:
    client._queue_timeout = 3600
    producer.confirming.clear()
    producer.room = 0
    with pytest.raises(QueueFull):
        client.call("t", 1, timeout=0.2)


def test_a_failure_from_before_is_no_answer_where_the_store_came_back_after_the_send(
    client: Client, producer: FakeProducer, consumer: AnsweringConsumer, store: MemoryStatusStore,
    pool: ThreadPoolExecutor,
) -> None:  # fmt: skip
    first = client.submit("t", 1, request_id="mine")
    consumer.say(first, State.FAILED, 1)
    assert client.wait(first, 5).state == "failed"
    store.available = False
    client.submit("t", 2, request_id="other")  # sees that the store is away, and so does the next
    store.available = True
    call = begin(pool, lambda: client.call("t", 1, timeout=30, request_id="mine"))
    eventually(lambda: waiting(client, "mine") and client._waits._waiting("mine")[0].status)
    consumer.say("mine", State.DONE, 2)
    assert call.result(10).state == "done"
