"""Who closes a client: also in the middle of its own calls, and while another closes it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from feedback import AsyncClient, Client, ClientClosed, DeliveryFailed, Status
from feedback.client import result_source
from feedback.client.subscriptions import Subscriptions
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import GIVEN_UP, FakeProducer
from tests.support.interrupting import interrupting
from tests.support.thread_starts import refusing
from tests.support.watched_lock import WatchedLock

Act = Callable[[], object]


def nothing() -> None: ...


class InterruptedStore(MemoryStatusStore):
    """Does something while it reads, once: as a signal handler in the middle of a call does."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Act = nothing

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        act, self.act = self.act, nothing
        act()
        return super().read(ids)


class InterruptedProducer(FakeProducer):
    """The same while it flushes, in the thread that serves it."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Act = nothing

    def flush(self, timeout: float) -> int:
        act, self.act = self.act, nothing
        act()
        return super().flush(timeout)


@pytest.fixture
def store() -> InterruptedStore:
    return InterruptedStore()


@pytest.fixture
def producer() -> InterruptedProducer:
    return InterruptedProducer()


def unconfirmed(client: Client, producer: FakeProducer) -> str:
    producer.confirming.clear()
    return client.submit("t", 1)


def test_a_flush_in_the_middle_of_which_the_client_is_closed_tells_what_failed(
    client: Client, producer: InterruptedProducer
) -> None:
    request_id = unconfirmed(client, producer)
    closing = interrupting(lambda: client.close(0))
    with closing as producer.act, pytest.raises(DeliveryFailed) as caught:
        client.flush(60)
    assert caught.value.failures == {request_id: GIVEN_UP}
    client.close()  # it was told


def test_what_failed_while_a_thread_closed_is_logged_and_told_at_the_end_of_the_block(
    store: InterruptedStore, producer: InterruptedProducer, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def block() -> None:
        with Client(producer, store, "requests") as client:
            told.append(unconfirmed(client, producer))
            store.act = lambda: client.close(0)
            assert client.status("a") is None
            eventually(lambda: caplog.messages)
            with pytest.raises(ClientClosed):
                client.status("a")

    with pytest.raises(DeliveryFailed) as caught, caplog.at_level(logging.ERROR, "oncepool.client"):
        block()
    assert caught.value.failures == {told[0]: GIVEN_UP}
    assert told[0] in caplog.text


def test_one_thread_closes_however_often_it_is_asked_to(
    client: Client, store: InterruptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = count_starts(monkeypatch)

    def act() -> None:
        client.close()
        client.close()

    store.act = act
    client.status("a")
    client.close()
    assert started == ["closing"]
    assert not client._deliveries._thread.is_alive()


def test_who_is_interrupted_while_it_closes_goes_on_itself(
    client: Client, producer: InterruptedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfirmed(client, producer)
    started = count_starts(monkeypatch)

    def act() -> None:
        client.close()
        producer.confirming.set()

    with interrupting(act) as producer.act:
        client.close()
    assert started == []
    assert not client._deliveries._thread.is_alive()


def count_starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of threads that close a client and are started from now on.

    Not of others: what an earlier test has left behind may start one.
    """
    started: list[str] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        if thread.name == "closing":
            started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    return started


def test_another_may_close_before_the_thread_that_is_to_close_has_started(
    client: Client,
    store: InterruptedStore,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def late(thread: threading.Thread) -> None:
        if thread.name == "closing":
            pool.submit(client.close).result(60)
            assert not client._deliveries._thread.is_alive()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    store.act = client.close
    client.status("a")


def test_who_comes_second_waits_until_all_is_closed(
    client: Client, producer: InterruptedProducer, pool: ThreadPoolExecutor
) -> None:
    flushing, waited_for = threading.Event(), threading.Event()
    watched: Any = WatchedLock(threading.Lock(), waited_for)
    client._closing._lock = watched

    def act() -> None:
        flushing.set()
        assert waited_for.wait(60)

    def second() -> bool:
        client.close()
        return client._deliveries._thread.is_alive()

    producer.act = act
    first = pool.submit(client.close)
    assert flushing.wait(60)
    assert not pool.submit(second).result(60)
    first.result(60)


def test_a_client_that_no_thread_can_be_started_for_is_open(
    client: Client, store: InterruptedStore
) -> None:
    with refusing("closing"):
        store.act = client.close
        with pytest.raises(RuntimeError, match="can't start"):
            client.status("a")
    request_id = client.submit("t", 1)
    client.close()
    status = store.read([request_id])[0]
    assert status is not None
    assert status.state == "accepted"


def test_an_async_client_that_no_thread_can_be_started_for_is_open(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> str:
        client = AsyncClient(producer, store, "requests")
        await client.submit("t", 0)
        with refusing("aside"), pytest.raises(RuntimeError, match="can't start"):
            await client.close()
        request_id = await client.submit("t", 1)
        await client.close()
        assert not client._deliveries._thread.is_alive()
        return request_id

    status = store.read([asyncio.run(work())])[0]
    assert status is not None
    assert status.state == "accepted"


async def cancel_close(
    client: AsyncClient, producer: InterruptedProducer, cancelled: threading.Event
) -> str:
    """Cancels a close() while it flushes, which goes on with the event.

    Returns the id of a request that the brokers do not confirm.
    """
    flushing = threading.Event()

    def act() -> None:
        flushing.set()
        assert cancelled.wait(60)

    producer.confirming.clear()
    request_id = await client.submit("t", 1)
    producer.act = act
    closing = asyncio.create_task(client.close(0))
    await asyncio.to_thread(flushing.wait, 60)
    closing.cancel()
    await asyncio.wait([closing])
    return request_id


def test_the_next_close_waits_for_one_that_was_cancelled_and_tells_what_failed(
    producer: InterruptedProducer, store: MemoryStatusStore
) -> None:
    cancelled = threading.Event()

    async def work() -> None:
        client = AsyncClient(producer, store, "requests")
        request_id = await cancel_close(client, producer, cancelled)
        asyncio.get_running_loop().call_soon(cancelled.set)
        with pytest.raises(DeliveryFailed) as caught:
            await client.close()
        assert caught.value.failures == {request_id: GIVEN_UP}
        assert not client._deliveries._thread.is_alive()
        await client.close()

    asyncio.run(work())


def test_what_failed_is_logged_where_a_close_was_cancelled(
    producer: InterruptedProducer, store: MemoryStatusStore, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = threading.Event()

    async def work() -> str:
        return await cancel_close(AsyncClient(producer, store, "requests"), producer, cancelled)

    with caplog.at_level(logging.ERROR, "oncepool.client"):
        request_id = asyncio.run(work())
        # The end of the program waits for these.
        lasting = [one for one in threading.enumerate() if one.name == "closing"]
        assert not any(one.daemon for one in lasting)
        cancelled.set()
        for one in lasting:
            one.join(60)
    assert request_id in caplog.text


def test_what_failed_is_logged_where_the_task_of_the_block_is_cancelled(
    producer: FakeProducer, store: MemoryStatusStore, caplog: pytest.LogCaptureFixture
) -> None:
    producer.error = "timed out"
    ids: list[str] = []

    async def work() -> None:
        async with AsyncClient(producer, store, "requests") as client:
            ids.append(await client.submit("t", 1))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError), caplog.at_level(logging.ERROR, "oncepool.client"):
        asyncio.run(work())
    assert ids[0] in caplog.text


@pytest.mark.parametrize("part", ["_waits", "_subscriptions", "_sender"])
def test_each_part_is_closed_whatever_another_raises(
    client: Client, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = getattr(client, part).close

    def raising() -> None:
        close()
        raise SystemExit(1)

    with monkeypatch.context() as patched:
        patched.setattr(getattr(client, part), "close", raising)
        with pytest.raises(SystemExit):
            client.close()
    assert client._waits.closed
    assert client._subscriptions._closed
    assert not client._deliveries._thread.is_alive()
    assert not client._sender._thread.is_alive()
    client.close()


def test_every_reader_is_closed_whatever_another_raises() -> None:
    subscriptions = Subscriptions({}, "results")
    readers: set[Any] = {Mock(close=Mock(side_effect=SystemExit)) for _ in range(2)}
    subscriptions._open = readers
    with pytest.raises(SystemExit):
        subscriptions.close()
    assert all(one.close.called for one in readers)


def test_a_close_that_ends_with_an_error_may_be_made_good(
    client: Client, producer: InterruptedProducer
) -> None:
    request_id = unconfirmed(client, producer)

    def act() -> None:
        raise KeyboardInterrupt

    with interrupting(act) as producer.act, pytest.raises(KeyboardInterrupt):
        client.close(60)
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0)
    assert caught.value.failures == {request_id: GIVEN_UP}


def test_nothing_is_closed_in_a_process_that_was_forked(client: Client) -> None:
    reason = client._closing.reason
    client.forked()
    client.close()
    with pytest.raises(ClientClosed, match="forked"):
        client.status("a")
    client._closing.reason = reason
    assert client._deliveries._thread.is_alive()


def test_who_interrupts_a_reader_does_not_wait_for_who_closes_it(
    store: MemoryStatusStore, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one waits for the reader's call to end."""

    class Consumer:
        act: Act = staticmethod(nothing)

        def poll(self, _timeout: float) -> None:
            self.act()

        def assign(self, _: object) -> None: ...

        def close(self) -> None: ...

    consumer = Consumer()
    monkeypatch.setattr(result_source, "connect", lambda *_: consumer)
    monkeypatch.setattr(result_source, "ResultPositions", Mock())
    client = Client({"bootstrap.servers": "127.0.0.1:1"}, store, "t", results_topic="results")
    reading = client.results()

    def act() -> None:
        pool.submit(client.close)
        eventually(lambda: reading.closed)
        client.close()

    consumer.act = act
    assert pool.submit(reading.poll, 60).result(60) is None
    client.close()
