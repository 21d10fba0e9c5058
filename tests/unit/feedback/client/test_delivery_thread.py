"""One thread serves the producer, and ends when nothing is on its way: whoever waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from feedback import Client, DeliveryFailed
from feedback.client.producer import LastingProducer
from feedback.errors import DeliveryPending
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import GIVEN_UP, FakeProducer
from tests.support.interrupting import interrupting


class WatchedProducer(FakeProducer):
    """Knows who serves it, and may be served in vain, or take nothing back."""

    def __init__(self) -> None:
        super().__init__()
        self.served_by: set[threading.Thread] = set()
        self.flushed = threading.Event()
        self.calls_back: Callable[[], None] | None = None
        """Once, when it is served next."""
        self.keeps = False

    def poll(self, timeout: float) -> int:
        self.served_by.add(threading.current_thread())
        calls_back, self.calls_back = self.calls_back, None
        if calls_back is not None:
            calls_back()
        return super().poll(timeout)

    def flush(self, timeout: float) -> int:
        self.flushed.set()
        return super().flush(timeout)

    def purge(self) -> None:
        if not self.keeps:
            super().purge()


@pytest.fixture
def producer() -> WatchedProducer:
    return WatchedProducer()


def accepted(store: MemoryStatusStore, id: str) -> bool:
    return store.read([id])[0] is not None


def test_whoever_waits_serves_nothing(
    client: Client, producer: WatchedProducer, pool: ThreadPoolExecutor
) -> None:
    for number in range(20):
        client.submit("t", number)
        client.flush(60)
    client.submit("t", 20)
    pool.submit(client.flush, 60).result(60)
    client.submit("t", 21)
    client.close()
    assert {one.name for one in producer.served_by} == {"deliveries"}


def test_a_close_that_a_signal_handler_ends_is_made_good_by_the_thread(
    client: Client, producer: WatchedProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    request_id = client.submit("t", 1)
    submission = client.submission(request_id)

    def act() -> None:
        raise KeyboardInterrupt

    with interrupting(act) as interrupt:
        closing = pool.submit(lambda: (producer.flushed.wait(60), interrupt()))
        with pytest.raises(KeyboardInterrupt):
            client.close(60)
        closing.result(60)
    assert client._deliveries._thread.is_alive()
    producer.confirming.set()
    eventually(lambda: not client._deliveries._thread.is_alive())
    assert submission is not None
    assert submission.delivered


def test_what_a_close_gives_up_ends_a_flush_in_another_thread(
    client: Client, producer: WatchedProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    request_id = client.submit("t", 1)
    flush = pool.submit(client.flush, 3600)
    assert producer.flushed.wait(60)
    failures: dict[str, str] = {}
    for ending in (lambda: client.close(0), lambda: flush.result(60)):
        try:
            ending()
        except DeliveryFailed as failed:
            failures |= failed.failures
    assert failures == {request_id: GIVEN_UP}


def test_what_is_not_even_given_up_ends_no_close(
    client: Client,
    producer: WatchedProducer,
    monkeypatch: pytest.MonkeyPatch,
    pool: ThreadPoolExecutor,
) -> None:
    monkeypatch.setattr("feedback.client.delivery_thread._GIVING_UP", 0.1)
    producer.keeps = True
    producer.confirming.clear()
    client._deliveries._producer = LastingProducer(producer, lambda: producer)  # one of its own
    client.submit("t", 1)
    client.close(0)
    assert not client._deliveries._thread.is_alive()
    assert pool.submit(client._deliveries.drain, 90).result(60) == 1, "at once: nobody serves it"


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_comes_out_of_a_call_that_serves_ends_nothing(
    client: Client,
    producer: WatchedProducer,
    store: MemoryStatusStore,
    closing: bool,
    error: type[BaseException],
) -> None:
    def raising() -> None:
        raise error

    producer.confirming.clear()
    producer.calls_back = raising
    request_id = client.submit("t", 1)
    eventually(lambda: producer.calls_back is None)
    if closing:
        producer.calls_back = raising
    producer.confirming.set()
    client.close()
    assert accepted(store, request_id)


def test_a_callback_waits_for_nothing(client: Client, producer: WatchedProducer) -> None:
    refused: list[str] = []

    def waits() -> None:
        for call in (client.flush, client._deliveries.close):
            with pytest.raises(RuntimeError, match="not inside a callback"):
                call(60)
            refused.append(call.__name__)

    producer.calls_back = waits
    eventually(lambda: refused == ["flush", "close"])
    client.submit("t", 1)  # it is not closed
    client.flush(60)


def test_who_does_not_wait_is_told_what_is_on_its_way(
    client: Client, producer: WatchedProducer
) -> None:
    client.flush(0)
    producer.confirming.clear()
    client.submit("t", 1)
    with pytest.raises(DeliveryPending, match="1"):
        client.flush(0)
    assert not producer.flushed.is_set()


def test_a_wait_for_all_may_be_as_long_as_you_like(
    client: Client, producer: WatchedProducer
) -> None:
    client.submit("t", 1)
    client.flush(float("inf"))
