"""The client on a real Kafka and a real Valkey, answered by a consumer of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError

from feedback import (
    AsyncClient,
    Client,
    Conflict,
    DeliveryFailed,
    Status,
    StoreUnavailable,
    WaitTimeout,
)
from feedback.client.message import KafkaMessage
from feedback.client.pending import Submission
from feedback.contract.envelope import Envelope, read
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from stack import Stack
from tests.support import eventually
from tests.support.answering import Answering, answer
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.private_valkey import PrivateValkey

TopicFactory = Callable[..., str]


@pytest.fixture
def client(stack: Stack, answering: Answering, prefix: str) -> Iterator[Client]:
    with Client(
        stack.kafka,
        stack.redis,
        answering.topic,
        prefix=prefix,
    ) as client:
        yield client


def test_there_and_back(client: Client, answering: Answering) -> None:
    status = client.call("echo", {"amount": 2**70}, timeout=90)
    assert (status.state, status.result) == ("done", {"amount": 2**70})
    request_id = client.submit("echo", [1], request_id="order-17", headers={"x-tenant": "blue"})
    assert client.wait(request_id, 90).result == [1]
    sent = read(answering.records[-1])
    assert (sent.id, sent.key, sent.headers) == ("order-17", b"order-17", {"x-tenant": "blue"})
    assert abs(sent.time - time.time()) < 60


def test_a_resend_is_the_same_message_to_the_millisecond(
    client: Client, answering: Answering
) -> None:
    assert client.call("lost", 1, timeout=90, resend_after=0.5).state == "done"
    assert client.call("outage", 2, timeout=90, resend_after=0.5).state == "done"
    for kind in ("lost", "outage"):
        first, *again = (record for record in answering.records if read(record).type == kind)
        assert again
        for record in again:
            assert record[1] == first[1]  # the partition, by the key
            assert record[3:] == first[3:]  # timestamp, key, value, headers


def test_thousands_of_requests_from_many_threads(client: Client, answering: Answering) -> None:
    def produce(thread: int) -> list[str]:
        return [client.submit("echo", number) for number in range(thread, 2_000, 8)]

    with ThreadPoolExecutor(8) as pool:
        ids = [name for names in pool.map(produce, range(8)) for name in names]
        results = pool.map(lambda name: client.wait(name, 60).result, ids)
        assert sorted(results) == list(range(2_000))
    assert len(set(ids)) == 2_000


def test_a_conflict_is_raised_and_the_first_answer_stays(
    client: Client, answering: Answering
) -> None:
    client.call("echo", {"amount": 1}, request_id="order-1", timeout=90)
    with pytest.raises(Conflict):
        client.call("echo", {"amount": 2}, request_id="order-1", timeout=90)
    assert client.call("echo", {"amount": 1}, request_id="order-1", timeout=90).result == {
        "amount": 1
    }


def test_no_answer_is_a_time_out_with_the_last_status(client: Client, answering: Answering) -> None:
    request_id = client.submit("lost", 1)
    client.flush()
    eventually(lambda: client.status(request_id))
    with pytest.raises(WaitTimeout) as caught:
        client.wait(request_id, 0.2)
    assert caught.value.status is not None
    assert caught.value.status.state == "accepted"


def test_a_broker_that_is_away_fails_the_delivery_in_bounded_time(
    stack: Stack, prefix: str
) -> None:
    client = Client("127.0.0.1:1", stack.redis, "requests", prefix=prefix, delivery_timeout=1.0)
    first, second = client.submit("echo", 1), client.submit("echo", 2)
    with pytest.raises(DeliveryFailed) as caught:
        client.wait(first, 90)
    assert list(caught.value.failures) == [first]
    with pytest.raises((DeliveryFailed, WaitTimeout), match=r"confirmed (it|by)"):
        client.call("echo", 3, timeout=2.5)
    with pytest.raises(DeliveryFailed) as caught:
        client.close()
    assert next(iter(caught.value.failures)) == second


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_call_outlasts_brokers_that_are_away_for_longer_than_a_delivery_may_take(
    stack: Stack, answering: Answering, prefix: str, kind: type[Client | AsyncClient]
) -> None:
    """It is sent again, under its id, for as long as the call waits."""
    offered: list[str] = []

    def call(address: str) -> Status[Any]:
        given = {"prefix": prefix, "delivery_timeout": 1.0}
        options = {"timeout": 120, "resend_after": 100, "request_id": "kept"}
        if kind is Client:
            with counted(Client(address, stack.redis, answering.topic, **given)) as client:
                return client.call("echo", 1, **options)

        async def work() -> Status[Any]:
            async with counted(AsyncClient(address, stack.redis, answering.topic, **given)) as it:
                return await it.call("echo", 1, **options)

        return asyncio.run(work())

    def counted(client: Any) -> Any:
        offer = client._deliveries.offer

        def noted(message: KafkaMessage, submission: Submission) -> bool:
            offered.append(message.id)
            return bool(offer(message, submission))

        client._deliveries.offer = noted
        return client

    with LoneBrokerProxy.of(stack.kafka) as broker, ThreadPoolExecutor(1) as pool:
        broker.cut()
        calling = pool.submit(call, f"127.0.0.1:{broker.port}")
        eventually(lambda: calling.done() or len(offered) > 2)
        broker.mend()
        status = calling.result(120)
    assert (status.state, status.result) == ("done", 1)
    assert set(offered) == {"kept"}


FORKS = """
import os, sys
from feedback import Client, ClientClosed

with Client(*sys.argv[1:4], prefix=sys.argv[4], results_topic=sys.argv[3]) as client:
    client.submit("echo", 1, request_id="before")
    client.flush()
    results = client.results()
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        print(client.call("echo", 2, request_id="after", timeout=90).state, status)
    else:
        for use in (lambda: client.submit("echo", 3), lambda: client.wait("before", 1)):
            try:
                use()
            except ClientClosed as error:
                print(error)
        assert results.poll(1) is None
        sys.stdout.flush()
"""


def test_in_a_forked_process_a_client_says_what_to_do_and_holds_nobody_up(
    stack: Stack, answering: Answering, prefix: str
) -> None:
    """A copy has no threads: it would send nothing, and the process would never come to its end."""
    name = answering.topic
    program = subprocess.Popen(
        [sys.executable, "-c", FORKS, stack.kafka, stack.redis, name, prefix],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        printed, complaints = program.communicate(timeout=150)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    *said, last = printed.splitlines()
    assert (last, program.returncode) == ("done 0", 0), complaints
    assert len(said) == 2
    assert all("make one in each process" in line for line in said)


def test_closing_does_not_wait_for_a_broker_that_is_away(stack: Stack, prefix: str) -> None:
    client = Client("127.0.0.1:1", stack.redis, "requests", prefix=prefix, delivery_timeout=600)
    client.submit("echo", 1)  # nor does submitting
    with pytest.raises(DeliveryFailed, match=KafkaError(KafkaError._PURGE_QUEUE).str()):
        client.close(0.5)


def test_redis_stopped_and_started_while_a_call_waits(
    stack: Stack, topic: TopicFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    valkey = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    store = RedisStatusStore(valkey.url, timeout=90.0)
    client = Client(stack.kafka, valkey.url, topic())
    try:
        request_id = client.submit("t", 1)
        client.flush()
        with ThreadPoolExecutor() as pool:
            wait = pool.submit(client.wait, request_id, 90)
            eventually(lambda: request_id in client._waits._watches)
            valkey.stop()
            eventually(lambda: client._waits._breaker.open)
            with pytest.raises(StoreUnavailable):
                client.status(request_id)
            later = client.submit("t", 2, request_id="later")
            with pytest.raises(WaitTimeout) as caught:
                client.wait(later, 0.3)
            assert caught.value.status is None
            valkey.start()
            envelope = Envelope(request_id, "t", b"1", None, {}, 0, client._channel, "t", 0, 0)
            store.write([answer(envelope, State.DONE)])
            assert wait.result(90).state == "done"
        eventually(lambda: valkey.hint_channels() == 1, message="subscribed again")
    finally:
        client.close()
        store.close()
        valkey.stop()


def test_ten_thousand_waits_share_one_channel_and_one_sweep(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    valkey = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    store = RedisStatusStore(valkey.url, timeout=90.0)
    client = Client("127.0.0.1:1", valkey.url, "requests")
    try:
        waits = client._waits
        waits.listen()
        threads = threading.active_count()
        watches = [waits.watch(f"id-{number}") for number in range(10_000)]
        woken: list[object] = []
        for watch in watches:
            watch.wake = lambda watch=watch: woken.append(watch)  # type: ignore[method-assign]
        assert threading.active_count() == threads
        assert valkey.hint_channels() == 1
        reads = valkey.reads()
        eventually(lambda: valkey.reads() >= reads + 60)  # three sweeps of 20 slices
        for chunk in range(20):
            writes = [
                answer(
                    Envelope(
                        f"id-{chunk * 500 + row}", "t", b"1", None, {}, 0,
                        client._channel, "t", 0, 0,
                    ),
                    State.DONE,
                )
                for row in range(500)
            ]  # fmt: skip
            store.write(writes)
            eventually(lambda chunk=chunk: len(woken) >= (chunk + 1) * 500)
        assert all(watch.status is not None and watch.status.state == "done" for watch in watches)
        assert len(woken) == 10_000  # each woken once
        for watch in watches:
            waits.unwatch(watch)
    finally:
        client.close()
        store.close()
        valkey.stop()


def test_hundreds_of_threads_wait_at_once(client: Client, answering: Answering) -> None:
    with ThreadPoolExecutor(400) as pool:
        calls = [pool.submit(client.call, "echo", number, timeout=60) for number in range(800)]
        assert [call.result(60).result for call in calls] == list(range(800))
