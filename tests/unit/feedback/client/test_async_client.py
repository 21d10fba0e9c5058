"""The client of an event loop, with a producer and a store in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from feedback import (
    AsyncClient,
    ClientClosed,
    Conflict,
    DeliveryFailed,
    StoreUnavailable,
    WaitTimeout,
)
from feedback.client.event_loop import LoopWatch
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.errors import DeliveryPending
from feedback.status.memory_store import MemoryStatusStore
from processing import App
from tests.support.client import AnsweringConsumer, FakeProducer, answering, holds_nothing, opened
from tests.support.tasks import in_loop, soon, turns_during


def test_there_and_back(
    producer: FakeProducer, store: MemoryStatusStore, consumer: AnsweringConsumer
) -> None:
    app = App()

    @app.handler("numbers")
    def numbers(payload: int) -> set[int]:
        return {payload}

    async def work() -> None:
        async with opened(producer, store) as client:
            name = await client.submit(numbers, 1, request_id="order-17")
            await client.flush(5)
            assert name == "order-17"
            await soon(lambda: store.read([name])[0])
            assert [s and s.state for s in await client.statuses(["b", name])] == [None, "accepted"]
            wait = asyncio.ensure_future(client.wait(name))
            await soon(lambda: name in client._waits._watches)
            consumer.say(name, State.DONE, result=b"[1]")
            assert (await wait).result == {1}
            assert (await client.wait(name, 0)).state == "done"
            status = await client.status(name)
            assert status is not None
            assert status.state == "done"
            assert holds_nothing(client)

    in_loop(work)


def test_a_call_sends_again_what_got_no_answer_or_was_refused(
    producer: FakeProducer, store: MemoryStatusStore, consumer: AnsweringConsumer
) -> None:
    thread = answering(
        producer,
        [
            lambda name: None,
            lambda name: consumer.say(name, State.FAILED, code="shutdown"),
            lambda name: consumer.say(name, State.DONE, run=2, result=b"7"),
        ],
    )

    async def work() -> None:
        async with opened(producer, store) as client:
            answer = await client.call("t", 1, timeout=20, resend_after=0.05)
            assert answer.result == 7
            assert len({envelope.id for envelope in producer.envelopes()}) == 1
            assert holds_nothing(client)

    in_loop(work)
    thread.join()


def test_a_wait_says_that_redis_could_not_be_read(producer: FakeProducer, tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncClient(producer, f"unix://{tmp_path}/nobody.sock", "requests") as client:
            with pytest.raises(WaitTimeout, match="could not be read"):
                await client.wait("a", 0.01)
            with pytest.raises(WaitTimeout, match="could not be read"):
                await client.call("t", 1, timeout=0.01)

    in_loop(work)


def test_errors_are_those_of_the_client(
    producer: FakeProducer, store: MemoryStatusStore, consumer: AnsweringConsumer
) -> None:
    async def work() -> None:
        async with opened(producer, store) as client:
            mine = await client.submit("t", 1, request_id="mine")
            consumer.say(mine, State.DONE, fingerprint=fingerprint("t", b"2", "application/json"))
            with pytest.raises(Conflict):
                await client.wait(mine, 5)
            consumer.say("slow", State.RUNNING)
            with pytest.raises(WaitTimeout) as late:
                await client.wait("slow", 0.05)
            assert late.value.status is not None
            assert late.value.status.state == "running"
            with pytest.raises(WaitTimeout):
                await client.call("t", 1, timeout=0.1)
            with pytest.raises(ValueError, match="positive"):
                await client.call("t", 1, timeout=0)
            with pytest.raises(TypeError):
                await client.wait(7)  # type: ignore[arg-type]
            with pytest.raises(UnicodeEncodeError):
                await client.status("\ud800")
            assert holds_nothing(client)

    in_loop(work)


def test_a_store_that_is_away_fails_only_who_asks_it(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        store.available = False
        async with opened(producer, store) as client:
            with pytest.raises(StoreUnavailable):
                await client.status("a")
            await client.submit("t", 1, request_id="unread")  # what stands need not be known
            with pytest.raises(WaitTimeout):
                await client.wait("unread", 0.05)
            assert [envelope.id for envelope in producer.envelopes()] == ["unread"]

    in_loop(work)


def test_what_was_not_delivered_is_told_once(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        async with opened(producer, store) as client:
            producer.error = "no broker"
            with pytest.raises(DeliveryFailed, match="no broker"):
                await client.wait(await client.submit("t", 1), 20)
            with pytest.raises(DeliveryFailed, match="no broker"):
                await client.call("t", 1, timeout=1)
            other = await client.submit("t", 1)
            with pytest.raises(DeliveryFailed) as failed:
                await client.flush(5)
            assert list(failed.value.failures) == [other]
            producer.error = None
            producer.confirming.clear()
            await client.submit("t", 1)
            with pytest.raises(DeliveryPending, match=r"0\.15"):
                await client.flush(0.15)
            assert holds_nothing(client)

    in_loop(work)


def test_who_wants_to_know_is_told_when_the_brokers_have_it(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        async with opened(producer, store) as client:
            producer.confirming.clear()
            name = await client.submit("t", 1, request_id="r")
            with pytest.raises(DeliveryPending):
                await client.delivered(name, 0.05)
            waits = [asyncio.ensure_future(client.delivered(name, 30)) for _ in range(2)]
            await soon(lambda: len(client._bells.get("r", ())) == 2)
            producer.confirming.set()
            said = await asyncio.gather(*waits)
            assert {(one.id, one.state, one.run) for one in said} == {("r", State.ACCEPTED, 0)}
            assert (await client.delivered(name, 0.0)).fingerprint == fingerprint("t", b"1")
            producer.error = "refused"
            other = await client.submit("t", 1)
            ends = await asyncio.gather(
                client.delivered(other, 30), client.delivered(other, 30), client.wait(other, 30),
                return_exceptions=True,
            )  # fmt: skip
            assert [type(end) for end in ends] == [DeliveryFailed] * 3
            with pytest.raises(DeliveryFailed, match="refused"):
                await client.delivered(other, 0)
            with pytest.raises(ValueError, match="not submitted by this client"):
                await client.delivered("nobody's", 30)
            assert client._bells == {}

    in_loop(work)


def test_a_closed_client_says_so(producer: FakeProducer, store: MemoryStatusStore) -> None:
    async def work() -> None:
        client = AsyncClient(producer, store, "requests")
        wait = asyncio.ensure_future(client.wait("never", 60))
        await soon(lambda: "never" in client._waits._watches)
        await client.close()
        with pytest.raises(ClientClosed):
            await wait
        for call in (client.submit("t", 1), client.status("a"), client.wait("a"), client.flush()):
            with pytest.raises(ClientClosed):
                await call
        await client.close()
        assert holds_nothing(client)

    in_loop(work)


def test_a_block_ends_with_its_own_error_and_names_what_was_not_delivered(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def block(error: Exception | None) -> None:
        async with AsyncClient(producer, store, "requests") as client:
            await client.submit("t", 1)
            if error is not None:
                raise error

    async def work() -> None:
        producer.error = "no broker"
        with pytest.raises(DeliveryFailed, match="no broker"):
            await block(None)
        with pytest.raises(KeyError) as caught:
            await block(KeyError())
        assert "no broker" in caught.value.__notes__[0]

    in_loop(work)


class GatedStore(MemoryStatusStore):
    """Its reads and subscriptions begin when the gate is opened, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.never_opened = False
        self.reads = 0

    def read(self, ids: Sequence[str]) -> list[Any]:
        self.reads += 1
        self._pass()
        return super().read(ids)

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        self._pass()
        return super().read_raw(ids)

    def subscribe(self, channel: str) -> Any:
        self._pass()
        return super().subscribe(channel)

    def _pass(self) -> None:
        if not self.gate.wait(20):
            self.never_opened = True


async def cancelled_in(call: Awaitable[Any], reached: Callable[[], Any]) -> None:
    """Cancels a call when it has come so far."""
    task = asyncio.ensure_future(call)
    await soon(reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_who_is_cancelled_leaves_nothing_behind(producer: FakeProducer) -> None:
    store = GatedStore()

    async def work() -> None:
        async with opened(producer, store, queue_timeout=40.0) as client:
            watches, deliveries = client._waits._watches, client._deliveries
            store.gate.clear()
            await cancelled_in(client.submit("t", 1, request_id="no hints"), lambda: store.reads)
            await cancelled_in(client.submit("t", 1), lambda: client._ready)
            await cancelled_in(client.status("a"), lambda: client._reads._thread.started)
            store.gate.set()
            await cancelled_in(client.wait("a", 40), lambda: "a" in watches)
            await cancelled_in(client.call("t", 1, timeout=40), lambda: producer.sent)
            sent = len(producer.sent)
            await client.flush(5)
            producer.room = 0
            calls = [client.submit("t", 1, request_id=f"unsent-{n}") for n in range(5)]
            await cancelled_in(asyncio.gather(*calls), lambda: deliveries._wakes)
            call = client.call("t", 1, timeout=40, request_id="unsent-5")
            await cancelled_in(call, lambda: deliveries._wakes)
            assert holds_nothing(client)
            assert all(client._submissions.get(f"unsent-{n}") is None for n in range(6))
            producer.room = 1_000
            producer.confirming.clear()
            await client.submit("t", 1)
            await cancelled_in(client.flush(40), lambda: threads("aside"))
            await soon(lambda: not threads("aside"))
            producer.confirming.set()
            await client.flush(5)
            assert len(producer.sent) == sent + 1
            assert await client.status("a") is None  # and everybody else is answered

    in_loop(work)
    assert not store.never_opened


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_a_close_that_is_cancelled_closes_all_the_same(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        client = AsyncClient(producer, store, "requests")
        producer.confirming.clear()
        producer.error = "no broker"
        await client.submit("t", 1)
        await cancelled_in(client.close(0.5), lambda: client._waits.closed)
        await soon(lambda: not client._deliveries._thread.is_alive() and not threads("aside"))
        assert not client._sender._thread.is_alive()

    in_loop(work)


def test_the_loop_goes_on_while_the_store_or_the_brokers_do_not(producer: FakeProducer) -> None:
    """What blocks goes on when the loop says so: a loop that stood still would never say it."""
    store = GatedStore()

    async def released(call: Awaitable[Any], gate: threading.Event) -> Any:
        gate.clear()
        task = asyncio.ensure_future(call)
        for _ in range(10):
            await asyncio.sleep(0.005)
        gate.set()
        return await task

    async def work() -> None:
        async with opened(producer, store) as client:
            await released(client.submit("t", 1), store.gate)  # it subscribes first
            await released(client.submit("t", 1, request_id="first"), store.gate)
            assert await released(client.status("a"), store.gate) is None
            with pytest.raises(WaitTimeout):
                await released(client.wait("a", 0), store.gate)
            for ended in (client.flush, client.close):
                producer.confirming.clear()
                await client.submit("t", 1)
                await released(ended(30), producer.confirming)

    in_loop(work)
    assert not store.never_opened


def test_a_loop_in_which_a_client_closes_is_not_held_up(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        client = AsyncClient(producer, store, "requests")
        producer.confirming.clear()
        producer.error = "no broker"
        await client.submit("t", 1)
        assert await turns_during(client.close(0.3)) > 20

    in_loop(work)


def test_what_many_ask_while_the_store_is_busy_takes_few_reads(producer: FakeProducer) -> None:
    store = GatedStore()

    async def work() -> None:
        async with opened(producer, store) as client:
            for available in (True, False):
                store.available = available
                store.gate.clear()
                before = store.reads
                asked = [asyncio.ensure_future(client.status(f"id-{n}")) for n in range(1_000)]
                await soon(lambda before=before: store.reads > before)
                store.gate.set()
                answers = await asyncio.gather(*asked, return_exceptions=True)
                assert store.reads - before <= (22 if available else 3)
                if available:
                    assert answers == [None] * 1_000
                else:
                    assert {type(answer) for answer in answers} == {StoreUnavailable}
                    assert len({id(answer) for answer in answers}) == 1_000

    in_loop(work)


def test_a_client_belongs_to_a_loop(
    producer: FakeProducer, store: MemoryStatusStore, consumer: AnsweringConsumer
) -> None:
    client = AsyncClient(producer, store, "requests")  # before any loop runs
    consumer.say("a", State.DONE)

    async def work() -> str:
        assert (await client.wait("a", 20)).state == "done"
        return await client.submit("t", 1)

    async def left() -> LoopWatch:
        return client._waits.begin(LoopWatch("b"))

    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await client.status("a")

    async def both() -> None:
        await work()
        await asyncio.get_running_loop().run_in_executor(None, asyncio.run, elsewhere())

    in_loop(both)
    in_loop(work)  # that loop has ended
    watch = in_loop(left)
    consumer.say("b", State.DONE)  # for a loop that is gone: nobody is hurt
    watch.wake()
    client._waits.unwatch(watch)
    in_loop(lambda: client.close(5))


def test_a_client_of_the_environment() -> None:
    environ = {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "ONCEPOOL_KAFKA_TOPIC": "requests",
        "ONCEPOOL_KAFKA_RESULTS_TOPIC": "results",
        "ONCEPOOL_REDIS_URL": "redis://127.0.0.1:1/0",
    }

    async def work() -> None:
        async with AsyncClient.from_env(environ, prefix="mine", hints=False) as client:
            assert client._channel is None
            with pytest.raises(StoreUnavailable):
                await client.status("a")

    in_loop(work)
