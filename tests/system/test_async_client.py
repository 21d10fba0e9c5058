"""The client of an event loop on a real Kafka and a real Valkey."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from feedback import AsyncClient, Conflict, DeliveryFailed, WaitTimeout
from feedback.client.shared_reads import SharedReads
from feedback.contract.envelope import Envelope, read
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusWrite
from stack import Stack
from tests.support.answering import Answering, answer
from tests.support.client import holds_nothing
from tests.support.descriptors import open_descriptors
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.private_valkey import PrivateValkey
from tests.support.proxy import Proxy
from tests.support.tasks import in_loop, soon, turns_during
from tests.support.waiting import eventually


def test_there_and_back(stack: Stack, answering: Answering, prefix: str) -> None:
    def client() -> AsyncClient:
        return AsyncClient(stack.kafka, stack.redis, answering.topic, prefix=prefix)

    async def work() -> None:
        async with client() as one, client() as other:
            status = await one.call("echo", {"amount": 2**70}, timeout=90)
            assert (status.state, status.result) == ("done", {"amount": 2**70})
            name = await one.submit("echo", [1], request_id="order-17")
            assert (await other.wait(name, 90)).result == [1]
            assert [s and s.state for s in await other.statuses([name, "?"])] == ["done", None]
            with pytest.raises(Conflict):
                await other.call("echo", [2], request_id=name, timeout=90)
            for kind in ("lost", "outage"):
                assert (await one.call(kind, 1, timeout=90, resend_after=0.5)).result == 1
                copies = [r for r in answering.records if read(r).type == kind]
                assert len(copies) >= 2
                assert len({read(r).id for r in copies}) == 1
            calls = [one.call("echo", number, timeout=90) for number in range(500)]
            assert [call.result for call in await asyncio.gather(*calls)] == list(range(500))
            await one.flush()
            assert one._waits._watches == other._waits._watches == {}

    in_loop(work, 200)


@pytest.fixture
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    made = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    yield made
    made.resume()
    made.stop()


def done(name: str, client: AsyncClient) -> StatusWrite:
    return answer(Envelope(name, "t", b"1", None, {}, 0, client._channel, "t", 0, 0), State.DONE)


@pytest.mark.long
def test_ten_thousand_tasks_wait_on_one_channel_and_one_sweep(valkey: PrivateValkey) -> None:
    names = [f"id-{number}" for number in range(10_000)]

    async def work() -> None:
        store = RedisStatusStore(valkey.url, timeout=30.0)
        async with AsyncClient("127.0.0.1:1", valkey.url, "requests") as client:
            first = asyncio.ensure_future(client.wait("first", 100))
            await soon(lambda: client._waits.listening)
            before = threading.active_count()
            waits = [asyncio.ensure_future(client.wait(name, 100)) for name in names]
            await soon(lambda: len(client._waits._watches) == 10_001)
            assert threading.active_count() == before
            assert valkey.hint_channels() == 1
            reads = valkey.reads()
            await soon(lambda: valkey.reads() >= reads + 42, 60)  # two sweeps of 21 slices
            for start in range(0, len(names), 2_000):
                cancelled = waits[start + 1_000 : start + 2_000]
                for wait in cancelled:
                    wait.cancel()
                store.write([done(name, client) for name in names[start : start + 1_000]])
                statuses = await asyncio.gather(*waits[start : start + 1_000])
                assert {status.state for status in statuses} == {State.DONE}
                assert all(wait.cancelled() for wait in cancelled)
            assert list(client._waits._watches) == ["first"]
            assert list(client._waits._schedule._waits) == ["first"]
            first.cancel()
            await asyncio.wait([first])
        store.close()

    in_loop(work, 200)
    assert valkey.hint_channels() == 0


def test_the_loop_goes_on_with_redis_paused_and_the_brokers_away(valkey: PrivateValkey) -> None:
    """Each of these takes its time; the loop must come round meanwhile, not after it."""

    async def work() -> None:
        store = RedisStatusStore(valkey.url, timeout=30.0)
        client = AsyncClient("127.0.0.1:1", valkey.url, "requests")
        valkey.pause()
        waits = asyncio.ensure_future(client.wait("answered", 100))
        assert await turns_during(client.submit("t", 1, request_id="mine")) > 20
        assert await turns_during(client.status("mine")) > 20
        with pytest.raises(WaitTimeout):
            await client.wait("never", 0.2)
        assert await turns_during(client.call("t", 1, timeout=0.2)) > 20
        assert await turns_during(client.flush(0.3)) > 20
        valkey.resume()
        store.write([done("answered", client)])
        assert (await waits).state == "done"
        closing = asyncio.ensure_future(client.close(0.3))
        assert await turns_during(closing) > 20
        with pytest.raises(DeliveryFailed) as failed:
            await closing
        assert "mine" in failed.value.failures
        store.close()

    in_loop(work, 200)


CONNECTIONS = 5
"""To Redis, at most: one for each thread of the client that asks it."""
ROOM = 4
"""Messages that its send queue takes."""


async def cancelled(calls: Sequence[Awaitable[Any]], reached: Callable[[], Any]) -> None:
    """Cancels them when they have come so far."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await soon(reached)
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


async def cancelled_calls(client: AsyncClient, redis: Proxy, broker: Proxy, turn: int) -> None:
    """Of each kind: some while Redis is asked, some while the broker is away, or nobody answers."""
    names = [f"{turn}-{number}" for number in range(10)]

    async def while_asked(reads: SharedReads, calls: Sequence[Awaitable[Any]]) -> None:
        redis.hang()
        await cancelled(calls, lambda: reads._thread.started and reads._asked.empty())
        redis.mend()

    await while_asked(client._reads, [client.status(name) for name in names])
    await while_asked(client._reads, [client.statuses(names) for _ in names])
    await while_asked(client._looks, [client.submit("echo", 1, request_id=name) for name in names])
    await while_asked(client._looks, [client.call("echo", 1, request_id=name) for name in names])
    assert await client.statuses(names) == [None] * len(names)

    broker.hang()
    sent = [await client.submit("echo", 1) for _ in range(ROOM)]
    await cancelled([client.flush(600) for _ in names], asides)
    await soon(lambda: not asides())
    full = client._deliveries
    await cancelled([client.submit("echo", 1) for _ in names], lambda: full._wakes)
    await cancelled([client.call("echo", 1) for _ in names], lambda: full._wakes)
    waits = client._waits._watches
    await cancelled([client.wait(name) for name in sent], lambda: set(sent) <= set(waits))
    broker.mend()
    await client.flush(60)
    assert {(await client.wait(name, 60)).state for name in sent} == {"done"}
    calls = {f"lost-{turn}-{number}": "lost" for number in range(ROOM)}
    await cancelled(
        [client.call(kind, 1, request_id=name) for name, kind in calls.items()],
        lambda: all(client.submission(name) for name in calls),
    )
    await client.flush(60)


def test_cancelled_calls_leave_no_task_no_wait_and_no_descriptor(
    stack: Stack, answering: Answering, prefix: str
) -> None:
    async def warm() -> None:
        async with AsyncClient(stack.kafka, stack.redis, answering.topic, prefix=prefix) as client:
            assert (await client.call("echo", 1, timeout=90)).result == 1

    async def work() -> None:
        patient = f"{redis.before(stack.redis)}?socket_timeout=60"
        options = {
            "bootstrap.servers": f"127.0.0.1:{broker.port}", "queue.buffering.max.messages": ROOM,
        }  # fmt: skip
        async with AsyncClient(
            options, patient, answering.topic, prefix=prefix, queue_timeout=60.0
        ) as client:
            await cancelled_calls(client, redis, broker, 0)  # what is made once is made then
            here = asyncio.all_tasks()
            await soon(lambda: not asides())
            before = kept()
            for turn in range(1, 4):
                await cancelled_calls(client, redis, broker, turn)
            assert asyncio.all_tasks() == here
            assert holds_nothing(client)
            assert client._bells == {}
            await soon(lambda: not asides())
            await soon(lambda: kept() == before)
            assert redis.connections <= CONNECTIONS

    def kept() -> tuple[int, int]:
        """Descriptors and threads that are no connection's: of one there are three, and two."""
        there = broker.connections + redis.connections
        return open_descriptors() - 3 * there, threading.active_count() - 2 * there

    with LoneBrokerProxy.of(stack.kafka) as broker, Proxy.of(stack.redis) as redis:
        in_loop(warm)  # who answers has all of its connections by then
        gc.collect()
        at_first = kept()
        in_loop(work, 200)
        # What a thread had in hand as it ended is garbage a moment later.
        eventually(lambda: gc.collect() + 1 and broker.connections + redis.connections == 0, 60)
        eventually(lambda: all(n <= first for n, first in zip(kept(), at_first, strict=True)), 60)


def asides() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aside"]
