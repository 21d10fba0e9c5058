"""The client of an event loop on a real Kafka and a real Valkey."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from feedback import AsyncClient, Conflict, DeliveryFailed, WaitTimeout
from feedback.contract.envelope import Envelope, read
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusWrite
from stack import Stack
from tests.support.answering import Answering, answer
from tests.support.private_valkey import PrivateValkey
from tests.support.tasks import in_loop, soon, turns_during


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
