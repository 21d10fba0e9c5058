"""Closing a client."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from feedback import (
    Client,
    ClientClosed,
    DeliveryFailed,
)
from feedback.client import unreported
from feedback.errors import DeliveryPending
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import GIVEN_UP, FakeProducer, begin, drafted
from tests.support.interrupting import interrupting


def test_closing_waits_for_deliveries_and_statuses(
    store: MemoryStatusStore, producer: FakeProducer
) -> None:
    with Client(producer, store, "requests") as client:
        ids = [client.submit("t", number) for number in range(50)]
    assert all(status and status.state == "accepted" for status in store.read(ids))


def test_nothing_can_be_done_with_a_closed_client(client: Client) -> None:
    client.close()
    client.close()
    for attempt in (
        lambda: client.submit("t", 1),
        lambda: client.status("a"),
        lambda: client.statuses(["a"]),
        lambda: client.wait("a", 1),
        lambda: client.call("t", 1, timeout=1),
        client.flush,
    ):
        with pytest.raises(ClientClosed):
            attempt()
    # Also where a thread was past the first look when another closed the client.
    message, submission = drafted("t", 1)
    with pytest.raises(ClientClosed):
        client._deliveries.send(message, submission, 1.0)


def test_closing_ends_waits_of_other_threads(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    others = set(threading.enumerate()) - {client._deliveries._thread}
    request_id = client.submit("t", 1)
    wait = begin(pool, client.wait, request_id, 60)
    call = begin(pool, client.call, "t", 2, timeout=60)
    eventually(lambda: len(client._waits._watches) == 2)
    client.close()
    for future in (wait, call):
        with pytest.raises(ClientClosed):
            future.result(5)
    ours = set(threading.enumerate()) - others
    assert not [t for t in ours if t.name in ("waits", "hints", "deliveries")]


def test_closing_raises_what_nobody_asked_about(
    store: MemoryStatusStore, producer: FakeProducer
) -> None:
    producer.error = "timed out"
    with pytest.raises(DeliveryFailed) as caught, Client(producer, store, "requests") as client:
        request_id = client.submit("t", 1)
    assert list(caught.value.failures) == [request_id]


def test_an_error_in_the_block_is_not_hidden_by_a_failed_delivery(
    store: MemoryStatusStore, producer: FakeProducer
) -> None:
    producer.error = "timed out"

    def fail() -> None:
        with Client(producer, store, "requests") as client:
            client.submit("t", 1)
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fail()
    assert "was not confirmed" in caught.value.__notes__[0]


@pytest.mark.parametrize("error", [KeyError("mine"), SystemExit(0), KeyboardInterrupt()])
def test_a_failed_delivery_is_logged_where_an_error_ends_the_block(
    store: MemoryStatusStore,
    producer: FakeProducer,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    """Of many of them Python prints nothing."""
    producer.error = "timed out"
    ids: list[str] = []

    def end() -> None:
        with Client(producer, store, "requests") as client:
            ids.append(client.submit("t", 1))
            raise error

    with pytest.raises(type(error)), caplog.at_level("ERROR", "oncepool.client"):
        end()
    (line,) = caplog.messages
    assert type(error).__name__ in line
    assert ids[0] in line


def test_what_is_open_is_logged_where_an_error_ends_the_closing(
    store: MemoryStatusStore,
    producer: FakeProducer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a signal handler that calls sys.exit() while a block ends."""
    failed: list[str] = []

    def interrupted() -> None:
        raise SystemExit(0)

    def end() -> None:
        with Client(producer, store, "requests") as client:
            producer.error = "timed out"
            failed.append(client.submit("t", 1))
            eventually(client._deliveries.failed)
            producer.confirming.clear()
            client.submit("t", 2)
            monkeypatch.setattr(producer, "flush", flush)

    with interrupting(interrupted) as interrupt:

        def flush(*_: float) -> int:
            monkeypatch.undo()
            interrupt()
            return len(producer)

        with pytest.raises(SystemExit), caplog.at_level("ERROR", "oncepool.client"):
            end()
    told, left = caplog.messages
    assert failed[0] in told
    assert "SystemExit ended close(): the brokers have not confirmed 1 messages yet" in left


def test_what_failed_is_told_in_the_middle_of_a_call(
    client: Client, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that closes then does not ask for the lock that is held."""
    producer.error = "timed out"
    client.submit("t", 1)
    tell, closed = client._deliveries.raise_failures, []

    def interrupted() -> None:
        if not closed:
            closed.append("begun")
            client.close()
            closed.append("ended")
        tell()

    monkeypatch.setattr(client._deliveries, "raise_failures", interrupted)
    with pytest.raises(DeliveryFailed):
        client.close()
    assert closed == ["begun", "ended"]


def test_closing_gives_up_what_is_not_confirmed_in_time(
    client: Client, producer: FakeProducer
) -> None:
    producer.confirming.clear()
    request_id = client.submit("t", 1)
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0.1)
    assert caught.value.failures == {request_id: GIVEN_UP}


def test_what_a_program_sends_itself_with_its_producer_is_left_to_it(
    client: Client, producer: FakeProducer
) -> None:
    told: list[object] = []
    producer.confirming.clear()
    producer.produce("events", on_delivery=lambda error, _: told.append(error))
    client.flush(0)  # it waits for none of those
    request_id = client.submit("t", 1)
    with pytest.raises(DeliveryPending) as pending:
        client.flush(0)
    assert pending.value.count == 1
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0.1)
    assert caught.value.failures == {request_id: GIVEN_UP}
    assert (told, len(producer)) == ([], 2)
    producer.confirming.set()
    producer.flush(10)
    assert (told, len(producer)) == ([None], 0)
    assert client.submission(request_id) is not None


def test_of_a_producer_that_reports_errors_alone_nothing_is_pending_once_it_is_empty(
    client: Client, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with librdkafka's `delivery.report.only.error`."""
    report_errors_alone(client, producer, monkeypatch)
    client.submit("t", 1)
    client.flush(10)
    eventually(lambda: not client._deliveries._unreported)
    client.submit("t", 2)
    client.close(10)


def test_of_such_a_producer_nothing_is_kept_for_longer_than_it_tries(
    client: Client, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of one with which the program sends all the time, so that it is never empty."""
    report_errors_alone(client, producer, monkeypatch)
    monkeypatch.setattr(FakeProducer, "__len__", lambda self: 1 + len(self._open))
    monkeypatch.setattr(unreported, "GIVES_UP", 0.0)
    for number in range(100):
        client.submit("t", number)
    eventually(lambda: len(client._deliveries._unreported) <= len(producer))


def test_of_such_a_producer_all_is_given_up_that_may_not_have_been_sent(
    client: Client, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition has no leader, say: what was sent last may have been delivered first."""
    report_errors_alone(client, producer, monkeypatch)
    monkeypatch.setattr(FakeProducer, "__len__", lambda self: 1 + len(self._open))
    ids = [client.submit("t", number) for number in range(3)]
    eventually(lambda: not producer._open)
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0)
    assert caught.value.failures == dict.fromkeys(ids, GIVEN_UP)


def report_errors_alone(
    client: Client, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce = producer.produce

    def silent(topic: str, **arguments: Any) -> None:
        produce(topic, **{**arguments, "on_delivery": lambda *_: None})

    monkeypatch.setattr(client._deliveries._producer.current, "produce", silent)


def test_closing_with_the_store_away_is_quick(
    client: Client, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    store.available = False
    client.submit("t", 1)
    client.close(3600)
