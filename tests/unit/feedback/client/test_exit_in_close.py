"""A signal handler that ends the program while its main thread closes a client."""

from __future__ import annotations

import logging
import threading

import pytest

from feedback import Client, DeliveryFailed
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import FakeProducer
from tests.support.interrupting import interrupting


class InterruptedProducer(FakeProducer):
    """A signal comes while it is flushed first. What it has is not confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.confirming.clear()
        self.interrupts = [lambda: None]

    def flush(self, timeout: float) -> int:
        if self.interrupts:
            self.interrupts.pop()()
        return super().flush(timeout)


@pytest.fixture
def producer() -> InterruptedProducer:
    return InterruptedProducer()


def closing() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "closing"]


def exit_in_close(client: Client, producer: InterruptedProducer, *, closes: bool) -> str:
    """Returns the id of what is in the queue then."""

    def handler() -> None:
        if closes:
            client.close(60)
        raise SystemExit(0)

    request_id = client.submit("t", 1)
    with interrupting(handler) as interrupt:
        producer.interrupts = [interrupt]
        with pytest.raises(SystemExit):
            client.close(60)
    return request_id


def test_what_is_queued_is_sent_where_the_handler_has_closed(
    client: Client, producer: InterruptedProducer, store: MemoryStatusStore
) -> None:
    request_id = exit_in_close(client, producer, closes=True)
    (goes_on,) = closing()
    assert not goes_on.daemon  # the end of the program waits for it
    producer.confirming.set()
    goes_on.join(60)
    assert store.read([request_id])[0] is not None
    assert not client._deliveries._thread.is_alive()
    assert not client._sender._thread.is_alive()
    client.close()


def test_what_failed_then_is_logged_and_told_to_who_closes_again(
    client: Client, producer: InterruptedProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.error = "timed out"
    with caplog.at_level(logging.ERROR, "oncepool.client"):
        request_id = exit_in_close(client, producer, closes=True)
        (goes_on,) = closing()
        producer.confirming.set()
        goes_on.join(60)
    assert request_id in caplog.text
    with pytest.raises(DeliveryFailed):
        client.close()


def test_what_is_sent_after_a_close_that_nobody_goes_on_with_has_its_status(
    client: Client, producer: InterruptedProducer, store: MemoryStatusStore
) -> None:
    request_id = exit_in_close(client, producer, closes=False)
    assert not closing()
    producer.confirming.set()
    eventually(lambda: store.read([request_id])[0] is not None)
    client.close()
    assert not client._sender._thread.is_alive()
