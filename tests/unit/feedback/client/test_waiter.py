"""Waiting for an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feedback import (
    Client,
    Conflict,
    StoreUnavailable,
    WaitTimeout,
)
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.client import AnsweringConsumer, FakeProducer, begin, waiting


@pytest.mark.parametrize(
    "state", ["done", "rejected", "superseded", "dead", "cancelled", "failed", "in_doubt"]
)
def test_a_wait_returns_what_is_settled(
    client: Client, consumer: AnsweringConsumer, state: str
) -> None:
    request_id = client.submit("t", 1)
    consumer.say(request_id, State(state))
    assert client.wait(request_id, 5).state == state


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_wait_goes_on_while_nothing_is_settled(
    client: Client, consumer: AnsweringConsumer, pool: ThreadPoolExecutor, state: str
) -> None:
    request_id = client.submit("t", 1)
    consumer.say(request_id, State(state))
    with pytest.raises(WaitTimeout) as caught:
        client.wait(request_id, 0.1)
    assert caught.value.status is not None
    assert caught.value.status.state == state
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: waiting(client, request_id))
    consumer.say(request_id, State.DONE, result=b"[7]")
    assert wait.result(10).result == [7]


def test_whatever_a_look_raises_the_next_one_comes(
    client: Client, store: MemoryStatusStore, consumer: AnsweringConsumer,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    raised: list[str] = []

    def broken(name: str) -> Any:
        whole = getattr(store, name)

        def call(*args: Any) -> Any:
            if raised.count(name) < 2:
                raised.append(name)
                raise RuntimeError("no answer that anybody foresaw")
            return whole(*args)

        return call

    for name in ("read_raw", "subscribe"):
        monkeypatch.setattr(store, name, broken(name), raising=False)
    request_id = client.submit("t", 1)
    consumer.say(request_id, State.DONE)

    assert client.wait(request_id, 30).state == "done"
    eventually(lambda: sorted(raised) == ["read_raw"] * 2 + ["subscribe"] * 2)
    assert "waits go on without statuses: no answer that anybody foresaw" in caplog.text


def test_a_wait_without_any_status(client: Client) -> None:
    with pytest.raises(WaitTimeout, match="no status at all") as caught:
        client.wait("unknown", 0.05)
    assert caught.value.status is None
    assert caught.value.id == "unknown"


def test_a_call_that_no_consumer_has_answered_names_what_to_look_at(
    store: MemoryStatusStore, producer: FakeProducer
) -> None:
    """A consumer under another prefix runs it, and no time is long enough for its answer."""
    wanted = r"last status: accepted.*runs for topic 'shop'.*prefix 'shop2' .*oncepool stats"
    with Client(producer, store, "shop", prefix="shop2") as client:
        request_id = client.submit("t", 1)
        eventually(lambda: client.status(request_id))
        with pytest.raises(WaitTimeout, match=wanted):
            client.wait(request_id, 0.01)
        with pytest.raises(WaitTimeout, match=wanted):
            client.call("t", 1, request_id=request_id, timeout=0.01)


def test_what_a_consumer_has_begun_is_only_waited_for(
    client: Client, consumer: AnsweringConsumer
) -> None:
    consumer.say("a", State.RUNNING)
    with pytest.raises(WaitTimeout, match=r"\(last status: running\)\. Send it again") as caught:
        client.wait("a", 0.01)
    assert "prefix" not in str(caught.value)


def test_a_wait_says_that_redis_could_not_be_read(producer: FakeProducer, tmp_path: Path) -> None:
    with Client(producer, f"unix://{tmp_path}/nobody.sock", "requests") as client:
        for wait in (
            lambda: client.wait("a", 0.01),
            lambda: client.call("t", 1, timeout=1.0),  # in which it is confirmed
        ):
            with pytest.raises(WaitTimeout, match=r"could not be read: .*look again") as caught:
                wait()
            assert "no status at all" not in str(caught.value)


def test_a_wait_that_ends_says_why_the_request_stands_as_it_does(
    client: Client, consumer: AnsweringConsumer
) -> None:
    request_id = client.submit("misspelt", 1)
    consumer.say(
        request_id,
        State.WAITING,
        code="unknown_type",
        reason="no handler for 'misspelt'",
        retry_at=datetime(2100, 1, 1, tzinfo=UTC),
    )
    with pytest.raises(WaitTimeout, match=r"unknown_type: no handler for 'misspelt'.*2100-01-01"):
        client.wait(request_id, 0.1)


def test_a_wait_of_no_time_takes_one_look(client: Client, consumer: AnsweringConsumer) -> None:
    with pytest.raises(WaitTimeout):
        client.wait("a", 0)
    consumer.say("a", State.DONE)
    assert client.wait("a", 0).state == "done"


def test_a_wait_without_a_time_out_takes_that_of_its_type(
    store: MemoryStatusStore, producer: FakeProducer
) -> None:
    with Client(producer, store, "requests", answer_timeouts={"t": 0.1}) as client:
        with pytest.raises(WaitTimeout, match=r"after 0\.1 s"):
            client.wait(client.submit("t", 1))
        with pytest.raises(WaitTimeout, match=r"after 0\.2 s"):
            client.wait(client.submit("t", 1, delay=0.1))


def test_anybody_may_wait_for_an_id(client: Client, consumer: AnsweringConsumer) -> None:
    consumer.say("another's", State.DONE, fingerprint=b"\x01" * 16)
    assert client.wait("another's", 5).state == "done"


def test_a_wait_wakes_by_a_hint(
    producer: FakeProducer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowSweep(MemoryStatusStore):
        reads = 0

        def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
            self.reads += 1
            return super().read_raw(ids)

    monkeypatch.setattr("feedback.client.poll_schedule.SHORTEST", 3600.0)
    monkeypatch.setattr("feedback.client.poll_schedule.LONGEST", 3600.0)
    store = SlowSweep()
    with Client(producer, store, "requests") as client:
        request_id = client.submit("t", 1)
        wait = begin(pool, client.wait, request_id, 30)
        eventually(lambda: waiting(client, request_id) and store.reads)
        reads = eventually(lambda: store.reads if not client._waits._schedule._urgent else 0)
        AnsweringConsumer(store, producer).say(request_id, State.DONE)
        assert wait.result(5).state == "done"
        assert store.reads <= reads + 2


def test_a_lost_hint_costs_a_sweep(
    client: Client, consumer: AnsweringConsumer, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: waiting(client, request_id))
    consumer.say(request_id, State.DONE, hint=False)
    assert wait.result(5).state == "done"


def test_a_broken_hint_channel_is_opened_again(
    client: Client, consumer: AnsweringConsumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    first = store._channels[client._channel or ""][0]
    store.available = False
    eventually(lambda: not store._channels[client._channel or ""])
    store.available = True
    second = eventually(lambda: store._channels[client._channel or ""])
    assert second[0] is not first
    consumer.say(request_id, State.DONE)
    assert client.wait(request_id, 5).state == "done"


def test_what_was_written_while_the_channel_was_broken_is_found(
    producer: FakeProducer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(MemoryStatusStore):
        broken = False

        def subscribe(self, channel: str) -> Any:
            if self.broken:
                raise StoreUnavailable("no channel")
            hints = super().subscribe(channel)
            receive = hints.receive

            def receive_or_break(timeout: float) -> bytes | None:
                if self.broken:
                    raise StoreUnavailable("cut")
                return receive(timeout)

            hints.receive = receive_or_break  # type: ignore[method-assign]
            return hints

    monkeypatch.setattr("feedback.client.poll_schedule.SHORTEST", 3600.0)
    monkeypatch.setattr("feedback.client.poll_schedule.LONGEST", 3600.0)
    store = Breaking()
    with Client(producer, store, "requests") as client:
        request_id = client.submit("t", 1)
        wait = begin(pool, client.wait, request_id, 30)
        eventually(lambda: waiting(client, request_id) and not client._waits._schedule._urgent)
        store.broken = True
        eventually(lambda: not store._channels[client._channel or ""])
        AnsweringConsumer(store, producer).say(request_id, State.DONE)
        store.broken = False
        assert wait.result(5).state == "done"


def test_with_the_store_away_a_wait_goes_on_and_tells_what_it_saw_last(
    client: Client, consumer: AnsweringConsumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    client._sender.flush(5)
    consumer.say(request_id, State.RUNNING)
    wait = begin(pool, client.wait, request_id, 0.5)
    eventually(lambda: waiting(client, request_id) and client._waits._waiting(request_id)[0].status)
    store.available = False
    with pytest.raises(WaitTimeout) as caught:
        wait.result(10)
    assert caught.value.status is not None
    assert caught.value.status.state == "running"
    with pytest.raises(StoreUnavailable):
        client.status(request_id)


def test_with_the_store_away_and_back_a_wait_ends_well(
    client: Client, consumer: AnsweringConsumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    store.available = False
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: client._waits._breaker.open)
    store.available = True
    consumer.say(request_id, State.DONE)
    assert wait.result(10).state == "done"


def test_an_emptied_store_does_not_wake_a_wait(
    client: Client, consumer: AnsweringConsumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    client.flush()
    client._sender.flush(5)
    consumer.say(request_id, State.RUNNING)
    wait = begin(pool, client.wait, request_id, 0.5)
    eventually(lambda: waiting(client, request_id) and client._waits._waiting(request_id)[0].status)
    store.forget()
    with pytest.raises(WaitTimeout) as caught:
        wait.result(10)
    assert caught.value.status is not None
    assert caught.value.status.state == "running"


def test_many_waits_for_one_id(
    client: Client, consumer: AnsweringConsumer, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    waits = [begin(pool, client.wait, request_id, 30) for _ in range(5)]
    eventually(lambda: len(client._waits._watches.get(request_id, ())) == 5)
    consumer.say(request_id, State.DONE)
    assert [wait.result(10).state for wait in waits] == ["done"] * 5
    assert not client._waits._watches
    assert client._waits._schedule.pause(0.0) is None


def test_an_id_that_is_no_text_is_refused_where_it_is_given(client: Client) -> None:
    with pytest.raises(ValueError):
        client.wait("\ud800", 1)


def test_a_failure_from_before_is_no_answer(client: Client, consumer: AnsweringConsumer) -> None:
    consumer.say("a", State.FAILED, 3, fingerprint=fingerprint("t", b"1"))
    client.submit("t", 1, request_id="a")
    with pytest.raises(WaitTimeout) as caught:
        client.wait("a", 0.1)
    assert caught.value.status is not None
    assert caught.value.status.state == "failed"
    consumer.say("a", State.FAILED, 4)
    assert client.wait("a", 5).run == 4


def test_another_payload_under_an_id_is_a_conflict(
    client: Client, consumer: AnsweringConsumer
) -> None:
    client.submit("t", {"amount": 1}, request_id="a")
    consumer.say("a", State.DONE)
    client.submit("t", {"amount": 2}, request_id="a")
    with pytest.raises(Conflict) as caught:
        client.wait("a", 5)
    assert caught.value.status.state == "done"
    with pytest.raises(Conflict):
        client.call("t", {"amount": 3}, request_id="a", timeout=5)
    # The stored request's status stays and can be read.
    status = client.status("a")
    assert status is not None
    assert status.state == "done"
    client.submit("t", {"amount": 1}, request_id="a")
    assert client.wait("a", 5).state == "done"


def test_an_id_that_is_a_number_is_refused_in_words(client: Client) -> None:
    for call in (client.wait, client.status):
        with pytest.raises(TypeError, match=r"a request id is text, not 17 \(int\)"):
            call(17)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ids is one text, 'order-17'"):
        client.statuses("order-17")


def test_a_time_that_is_no_number_is_refused(client: Client) -> None:
    for ask in (
        lambda: client.wait("a", float("nan")),
        lambda: client.call("t", 1, timeout=float("nan")),
        lambda: client.call("t", 1, timeout=1, resend_after=float("nan")),
    ):
        with pytest.raises(ValueError, match="timeout"):
            ask()


@pytest.mark.parametrize("given", ["30", timedelta(seconds=30), True])
def test_a_time_of_another_kind_is_refused_in_words(client: Client, given: Any) -> None:
    asks: dict[str, Callable[[], object]] = {
        "wait": lambda: client.wait("a", given),
        "call": lambda: client.call("t", 1, timeout=given),
        "resend": lambda: client.call("t", 1, timeout=1, resend_after=given),
    }
    for ask in asks.values():
        with pytest.raises(TypeError, match=r"(timeout|resend_after) is .*: it has to be seconds"):
            ask()
