"""The client with a producer and a store in memory: each case that a service can bring about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka
import pytest

from feedback import (
    Client,
    ClientClosed,
    Conflict,
    DeliveryFailed,
    QueueFull,
    Status,
    StoreUnavailable,
    WaitTimeout,
)
from feedback.client.message import draft
from feedback.contract.envelope import Envelope, read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.errors import ConfigurationError, DeliveryPending
from feedback.status.status import encode_status
from feedback.status.store import Hints, MemoryStatusStore, StatusWrite
from tests.support import eventually


class FakeProducer:
    """Keeps messages; confirms them when polled, unless it is told otherwise."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.room = 1_000
        self.confirming = threading.Event()
        self.confirming.set()
        self.error: str | None = None
        self.refusal: BaseException | None = None
        self._lock = threading.Lock()
        self._open: list[Callable[[Any, Any], None]] = []
        self._reporting = 0
        self._something = threading.Event()

    def produce(self, topic: str, **arguments: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        with self._lock:
            if len(self._open) >= self.room:
                raise BufferError("queue full")
            self._open.append(arguments["on_delivery"])
            self.sent.append({"topic": topic, **arguments})
        self._something.set()

    def poll(self, timeout: float) -> int:
        self._something.wait(timeout)
        self._something.clear()
        if not self.confirming.wait(timeout):
            return 0
        return self._report(self.error)

    def flush(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while self._unreported() and time.monotonic() < end:
            self.poll(0.01)
        return self._unreported()

    def purge(self) -> None:
        self._report("purged")
        self.confirming.set()

    def _report(self, error: str | None) -> int:
        with self._lock:
            reports, self._open = self._open, []
            self._reporting += len(reports)
        for report in reports:
            report(error, None)
        with self._lock:
            self._reporting -= len(reports)
        return len(reports)

    def _unreported(self) -> int:
        with self._lock:
            return len(self._open) + self._reporting

    def envelopes(self) -> list[Envelope]:
        return [
            read(("t", 0, 0, m["timestamp"], m["key"], m["value"], m["headers"], None))
            for m in self.sent
        ]


class Consumer:
    """Answers as a consumer would."""

    def __init__(self, store: MemoryStatusStore, producer: FakeProducer) -> None:
        self.store = store
        self.producer = producer

    def say(self, id: str, state: State, run: int = 1, *, hint: bool = True, **fields: Any) -> None:
        sent = next((e for e in reversed(self.producer.envelopes()) if e.id == id), None)
        digest = fields.pop("fingerprint", None)
        if digest is None and sent is not None:
            digest = fingerprint(sent.type, sent.payload or b"", sent.content_type)
        bump = fields.pop("bump", False)
        value = encode_status(
            id,
            "t",
            state,
            run,
            code=fields.pop("code", "ok"),
            attempt=1,
            at=datetime.now(UTC),
            fingerprint=digest,
            **fields,
        )
        reply_to = sent.reply_to if sent is not None and hint else None
        self.store.write([StatusWrite(id, value, 3600, bump, reply_to)])


@pytest.fixture
def store() -> MemoryStatusStore:
    return MemoryStatusStore()


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def consumer(store: MemoryStatusStore, producer: FakeProducer) -> Consumer:
    return Consumer(store, producer)


@pytest.fixture
def client(store: MemoryStatusStore, producer: FakeProducer) -> Iterator[Client]:
    client = Client(producer, store, "requests", queue_timeout=0.2)
    yield client
    producer.confirming.set()
    producer.error = None
    with suppress(DeliveryFailed):
        client.close(5)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waiting(client: Client, id: str) -> bool:
    return id in client._waits._watches


def begin(
    pool: ThreadPoolExecutor, call: Callable[..., Status], *args: Any, **options: Any
) -> Future[Status]:
    return pool.submit(call, *args, **options)


# Submitting


def test_a_submitted_request_is_sent_and_accepted(
    client: Client, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    request_id = client.submit("t", {"a": 1})
    envelope = producer.envelopes()[0]
    assert producer.sent[0]["topic"] == "requests"
    assert (envelope.id, envelope.type, envelope.payload) == (request_id, "t", b'{"a":1}')
    assert envelope.reply_to == client._channel
    status = eventually(lambda: client.status(request_id))
    assert status is not None
    assert (status.state, status.v, status.attempt) == ("accepted", "000001", 0)
    assert status.fingerprint == fingerprint("t", b'{"a":1}').hex()
    client.flush()


def test_accepted_lives_as_long_as_an_answer_may_take(producer: FakeProducer) -> None:
    now = [0.0]
    store = MemoryStatusStore(lambda: now[0])
    with Client(producer, store, "requests", answer_timeouts={"quick": 10}) as client:
        client.submit("quick", 1, request_id="a")
        client.submit("quick", 1, request_id="b", delay=100)
        client.submit("other", 1, request_id="c")
        eventually(lambda: None not in client.statuses(["a", "b", "c"]))
        alive = []
        for moment in (9, 20, 109, 120, 3599, 3602):
            now[0] = moment
            alive.append([status is not None for status in client.statuses(["a", "b", "c"])])
    assert alive == [
        [True, True, True],
        [False, True, True],
        [False, True, True],
        [False, False, True],
        [False, False, True],
        [False, False, False],
    ]


def test_accepted_never_replaces_a_newer_status(client: Client, consumer: Consumer) -> None:
    consumer.say("a", State.FAILED)
    client.submit("t", 1, request_id="a")
    client.flush()
    client._sender.flush(5)
    assert [status and status.state for status in client.statuses(["a", "b"])] == ["failed", None]


def test_the_hint_channel_is_heard_before_the_first_send(producer: FakeProducer) -> None:
    class Recorder(MemoryStatusStore):
        def subscribe(self, channel: str) -> Any:
            time.sleep(0.05)
            subscribed.append((channel, len(producer.sent)))
            return super().subscribe(channel)

    subscribed: list[tuple[str, int]] = []
    with Client(producer, Recorder(), "requests", prefix="mine") as client:
        for _ in range(3):
            client.submit("t", 1)
        assert subscribed == [(client._channel, 0)]
        assert subscribed[0][0].startswith("mine:hints:")


def test_without_hints_a_header_is_saved_and_waits_work(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    with Client(producer, store, "requests", hints=False) as client:
        request_id = client.submit("t", 1)
        assert producer.envelopes()[0].reply_to is None
        Consumer(store, producer).say(request_id, State.DONE)
        assert client.wait(request_id, 5).state == "done"


def test_a_full_queue_waits_a_little_and_is_refused(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    producer.room = 2
    client.submit("t", 1)
    client.submit("t", 2)
    start = time.monotonic()
    with pytest.raises(QueueFull) as caught:
        client.submit("t", 3, request_id="third")
    assert 0.2 <= time.monotonic() - start < 2
    assert caught.value.id == "third"
    # Room that comes in time is taken.
    client._queue_timeout = 30
    waiting = pool.submit(client.submit, "t", 4)
    eventually(lambda: client._deliveries._blocked)
    producer.confirming.set()
    assert waiting.result(10)
    assert len(producer.sent) == 3


def test_a_payload_too_large_for_kafka_says_so(client: Client, producer: FakeProducer) -> None:
    code = confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    producer.refusal = confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))
    with pytest.raises(ValueError, match="too large for Kafka"):
        client.submit("t", "x" * 100)
    producer.refusal = confluent_kafka.KafkaException(
        confluent_kafka.KafkaError(confluent_kafka.KafkaError._FATAL)
    )
    with pytest.raises(DeliveryFailed):
        client.submit("t", 1)


def test_sent_again_a_request_keeps_the_time_of_its_first_send(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    client.submit("t", {"a": 1}, request_id="a")
    client.submit("t", 1, request_id="b")
    first = producer.sent[0]["timestamp"]
    eventually(lambda: time.time_ns() // 1_000_000 > first + 1)
    client.submit("t", b'{ "a" : 1 }', request_id="a")
    consumer.say("a", State.DONE)
    client.call("t", {"a": 1}, request_id="a", timeout=5)
    client.submit("t", {"a": 1}, request_id="a", delay=1)
    assert [sent["timestamp"] for sent in producer.sent[2:]] == [first] * 3
    # Another payload, or another id, is another request.
    client.submit("t", {"a": 2}, request_id="a")
    client.submit("other", 1, request_id="b")
    client.submit("t", {"a": 1})
    assert min(sent["timestamp"] for sent in producer.sent[5:]) > first


# Delivery that fails


def test_a_failed_delivery_is_raised_by_the_next_wait_for_it(
    client: Client, producer: FakeProducer
) -> None:
    producer.error = "timed out"
    first, second = client.submit("t", 1), client.submit("t", 2)
    with pytest.raises(DeliveryFailed) as caught:
        client.wait(first, 10)
    assert caught.value.failures == {first: "timed out"}
    with pytest.raises(DeliveryFailed) as caught:  # who was told is not told again
        client.flush()
    assert caught.value.failures == {second: "timed out"}
    client.flush()
    assert client.status(first) is None  # never accepted


def test_a_failed_delivery_ends_a_wait_that_runs(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    producer.confirming.clear()
    producer.error = "timed out"
    request_id = client.submit("t", 1)
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: waiting(client, request_id))
    producer.confirming.set()
    with pytest.raises(DeliveryFailed):
        wait.result(10)


def test_sent_again_with_success_a_failure_is_forgotten(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    producer.error = "timed out"
    client.submit("t", 1, request_id="a")
    eventually(lambda: client._deliveries._failures)
    producer.error = None
    client.submit("t", 1, request_id="a")
    client.flush()
    consumer.say("a", State.DONE)
    assert client.wait("a", 5).state == "done"


def test_an_answer_counts_more_than_a_delivery_report(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    # It did arrive: only the broker's reply was lost.
    producer.error = "timed out"
    producer.confirming.clear()
    client.submit("t", 1, request_id="a")
    consumer.say("a", State.DONE)
    assert client.wait("a", 5).state == "done"


def test_many_failures_are_counted_beyond_what_is_listed(
    client: Client, producer: FakeProducer
) -> None:
    producer.error = "timed out"
    producer.room = 2_000
    ids = [client.submit("t", number) for number in range(1_200)]
    eventually(lambda: client._deliveries._more == 200)
    with pytest.raises(DeliveryFailed):
        client.wait(ids[-1], 5)
    with pytest.raises(DeliveryFailed, match="and 1198 others") as caught:
        client.flush()
    assert len(caught.value.failures) == 1_000
    assert caught.value.more == 199


def test_flush_says_when_time_runs_out(client: Client, producer: FakeProducer) -> None:
    producer.confirming.clear()
    client.submit("t", 1)
    with pytest.raises(DeliveryPending) as caught:
        client.flush(0.05)
    assert caught.value.count == 1


# Waiting


@pytest.mark.parametrize(
    "state", ["done", "rejected", "superseded", "dead", "cancelled", "failed", "in_doubt"]
)
def test_a_wait_returns_what_is_settled(client: Client, consumer: Consumer, state: str) -> None:
    request_id = client.submit("t", 1)
    consumer.say(request_id, State(state))
    assert client.wait(request_id, 5).state == state


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_wait_goes_on_while_nothing_is_settled(
    client: Client, consumer: Consumer, pool: ThreadPoolExecutor, state: str
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


def test_a_wait_without_any_status(client: Client) -> None:
    with pytest.raises(WaitTimeout, match="no status at all") as caught:
        client.wait("unknown", 0.05)
    assert caught.value.status is None
    assert caught.value.id == "unknown"


def test_a_wait_of_no_time_takes_one_look(client: Client, consumer: Consumer) -> None:
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


def test_anybody_may_wait_for_an_id(client: Client, consumer: Consumer) -> None:
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
        reads = eventually(lambda: store.reads if not client._waits._agenda._urgent else 0)
        Consumer(store, producer).say(request_id, State.DONE)
        assert wait.result(5).state == "done"
        assert store.reads <= reads + 2


def test_a_lost_hint_costs_a_sweep(
    client: Client, consumer: Consumer, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: waiting(client, request_id))
    consumer.say(request_id, State.DONE, hint=False)
    assert wait.result(5).state == "done"


def test_a_broken_hint_channel_is_opened_again(
    client: Client, consumer: Consumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
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
        eventually(lambda: waiting(client, request_id) and not client._waits._agenda._urgent)
        store.broken = True
        eventually(lambda: not store._channels[client._channel or ""])
        Consumer(store, producer).say(request_id, State.DONE)
        store.broken = False
        assert wait.result(5).state == "done"


def test_with_the_store_away_a_wait_goes_on_and_tells_what_it_saw_last(
    client: Client, consumer: Consumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    client._sender.flush(5)
    consumer.say(request_id, State.RUNNING)
    wait = begin(pool, client.wait, request_id, 0.5)
    eventually(lambda: waiting(client, request_id) and client._waits._watches[request_id][0].status)
    store.available = False
    with pytest.raises(WaitTimeout) as caught:
        wait.result(10)
    assert caught.value.status is not None
    assert caught.value.status.state == "running"
    with pytest.raises(StoreUnavailable):
        client.status(request_id)


def test_with_the_store_away_and_back_a_wait_ends_well(
    client: Client, consumer: Consumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    store.available = False
    wait = begin(pool, client.wait, request_id, 30)
    eventually(lambda: client._waits._breaker.open)
    store.available = True
    consumer.say(request_id, State.DONE)
    assert wait.result(10).state == "done"


def test_submitting_with_the_store_away_is_quick_and_sends(
    client: Client, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    store.available = False
    start = time.monotonic()
    for number in range(100):
        client.submit("t", number, request_id=f"n{number}")
    assert time.monotonic() - start < 2
    assert len(producer.sent) == 100
    store.available = True
    eventually(lambda: client._sender.stats().written == 100)


def test_an_emptied_store_does_not_wake_a_wait(
    client: Client, consumer: Consumer, store: MemoryStatusStore, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    client.flush()
    client._sender.flush(5)
    consumer.say(request_id, State.RUNNING)
    wait = begin(pool, client.wait, request_id, 0.5)
    eventually(lambda: waiting(client, request_id) and client._waits._watches[request_id][0].status)
    store.forget()
    with pytest.raises(WaitTimeout) as caught:
        wait.result(10)
    assert caught.value.status is not None
    assert caught.value.status.state == "running"


def test_many_waits_for_one_id(
    client: Client, consumer: Consumer, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    waits = [begin(pool, client.wait, request_id, 30) for _ in range(5)]
    eventually(lambda: len(client._waits._watches.get(request_id, ())) == 5)
    consumer.say(request_id, State.DONE)
    assert [wait.result(10).state for wait in waits] == ["done"] * 5
    assert not client._waits._watches
    assert client._waits._agenda.pause(0.0) is None


def test_an_id_that_is_no_text_is_refused_where_it_is_given(client: Client) -> None:
    with pytest.raises(ValueError):
        client.wait("\ud800", 1)


def test_a_failure_from_before_is_no_answer(client: Client, consumer: Consumer) -> None:
    consumer.say("a", State.FAILED, 3, fingerprint=fingerprint("t", b"1"))
    client.submit("t", 1, request_id="a")
    with pytest.raises(WaitTimeout) as caught:
        client.wait("a", 0.1)
    assert caught.value.status is not None
    assert caught.value.status.state == "failed"
    consumer.say("a", State.FAILED, 4)
    assert client.wait("a", 5).run == 4


def test_another_payload_under_an_id_is_a_conflict(client: Client, consumer: Consumer) -> None:
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


# Calling


def answering(
    client: Client, producer: FakeProducer, answers: list[Callable[[str], None]]
) -> threading.Thread:
    """Gives the n-th answer when the n-th message has been sent."""

    def run() -> None:
        for number, answer in enumerate(answers, start=1):
            eventually(lambda number=number: len(producer.sent) >= number)
            answer(producer.envelopes()[number - 1].id)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_call_returns_the_answer(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    answering(client, producer, [lambda name: consumer.say(name, State.DONE, result=b'{"n":1}')])
    status = client.call("t", {"a": 1}, timeout=10, key="k", run_timeout=3)
    assert status.result == {"n": 1}
    assert (producer.envelopes()[0].key, producer.envelopes()[0].timeout) == (b"k", 3)
    assert len(producer.sent) == 1


def test_a_call_sends_the_same_message_again(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    def silent(name: str) -> None: ...

    answering(
        client, producer, [silent, silent, silent, lambda name: consumer.say(name, State.DONE)]
    )
    assert client.call("t", 1, timeout=10, resend_after=0.1).state == "done"
    assert len(producer.sent) == 4
    first = {name: value for name, value in producer.sent[0].items() if name != "on_delivery"}
    for again in producer.sent[1:]:
        assert {name: value for name, value in again.items() if name != "on_delivery"} == first


def test_accepted_is_no_news_and_running_is(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    def run_and_finish(id: str) -> None:
        for run in range(1, 6):
            consumer.say(id, State.RUNNING, run)
            time.sleep(0.15)
        consumer.say(id, State.DONE, 6)

    answering(client, producer, [lambda name: None, run_and_finish])
    assert client.call("t", 1, timeout=10, resend_after=0.4).state == "done"
    assert len(producer.sent) == 2  # once for silence, and not while it was at work


def test_a_request_that_waits_is_not_sent_again_before_it_is_due(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    retry_at = datetime.now(UTC) + timedelta(seconds=60)
    answering(client, producer, [lambda name: consumer.say(name, State.WAITING, retry_at=retry_at)])
    with pytest.raises(WaitTimeout) as caught:
        client.call("t", 1, timeout=0.6, resend_after=0.1)
    assert caught.value.status is not None
    assert caught.value.status.state == "waiting"
    assert len(producer.sent) == 1


@pytest.mark.parametrize("code", ["shutdown", "database_unavailable"])
def test_a_call_sends_again_after_a_consumer_could_not_run_it(
    client: Client, producer: FakeProducer, consumer: Consumer, code: str
) -> None:
    answering(
        client,
        producer,
        [
            lambda name: consumer.say(name, State.FAILED, 1, code=code),
            lambda name: consumer.say(name, State.FAILED, 2, code=code),
            lambda name: consumer.say(name, State.DONE, 1),
        ],
    )
    start = time.monotonic()
    # The gaps are 1 s doubling, but never longer than resend_after.
    assert client.call("t", 1, timeout=20, resend_after=0.2).state == "done"
    assert 0.35 < time.monotonic() - start < 5
    assert len(producer.sent) == 3


def test_a_refusal_is_heard_once_and_a_second_later(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    sent: list[float] = []

    def refuse(name: str) -> None:
        sent.append(time.monotonic())
        consumer.say(name, State.FAILED, code="shutdown")

    def look_again(name: str) -> None:
        sent.append(time.monotonic())
        client._waits.wake(name)

    answering(client, producer, [refuse, look_again])
    with pytest.raises(WaitTimeout) as caught:
        client.call("t", 1, timeout=3.5, resend_after=60)
    assert len(producer.sent) == 2  # the old refusal is no answer to the second send
    assert 0.9 < sent[1] - sent[0] < 2
    assert caught.value.status is not None
    assert caught.value.status.code == "shutdown"


def test_after_refusals_the_journals_failure_answers_though_its_run_is_lower(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    answering(
        client,
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
    client: Client, producer: FakeProducer, consumer: Consumer, state: str
) -> None:
    answering(client, producer, [lambda name: consumer.say(name, State(state), code="some_code")])
    assert client.call("t", 1, timeout=10).state == state
    assert len(producer.sent) == 1


def test_a_call_ignores_a_failure_from_before(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    consumer.say("a", State.FAILED, 2, code="handler_error", fingerprint=fingerprint("t", b"1"))
    answering(
        client, producer, [lambda name: consumer.say(name, State.FAILED, 3, code="handler_error")]
    )
    assert client.call("t", 1, request_id="a", timeout=10).run == 3


def test_a_call_that_was_not_delivered_raises(client: Client, producer: FakeProducer) -> None:
    producer.error = "timed out"
    with pytest.raises(DeliveryFailed):
        client.call("t", 1, timeout=10)


def test_a_resend_that_fails_changes_nothing_for_the_first(
    client: Client, producer: FakeProducer, consumer: Consumer
) -> None:
    def fail_the_next(id: str) -> None:
        eventually(lambda: client.status(id))
        producer.error = "timed out"

    def answer(id: str) -> None:
        eventually(lambda: not producer._unreported())
        consumer.say(id, State.DONE)

    answering(client, producer, [fail_the_next, answer])
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


def test_a_call_is_bounded_also_when_the_queue_is_full(
    client: Client, producer: FakeProducer
) -> None:
    client._queue_timeout = 60
    producer.confirming.clear()
    producer.room = 0
    start = time.monotonic()
    with pytest.raises(QueueFull):
        client.call("t", 1, timeout=0.2)
    assert time.monotonic() - start < 5


# Closing


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
    message, submission = draft("t", 1, topic="requests", reply_to=None)
    with pytest.raises(ClientClosed):
        client._deliveries.send(message, submission, 1.0)


def test_closing_ends_waits_of_other_threads(
    client: Client, producer: FakeProducer, pool: ThreadPoolExecutor
) -> None:
    request_id = client.submit("t", 1)
    wait = begin(pool, client.wait, request_id, 60)
    call = begin(pool, client.call, "t", 2, timeout=60)
    eventually(lambda: len(client._waits._watches) == 2)
    client.close()
    for future in (wait, call):
        with pytest.raises(ClientClosed):
            future.result(5)
    assert not [t for t in threading.enumerate() if t.name in ("waits", "hints", "deliveries")]


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


def test_closing_gives_up_what_is_not_confirmed_in_time(
    client: Client, producer: FakeProducer
) -> None:
    producer.confirming.clear()
    request_id = client.submit("t", 1)
    start = time.monotonic()
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0.1)
    assert time.monotonic() - start < 3
    assert caught.value.failures == {request_id: "purged"}


def test_closing_with_the_store_away_is_quick(
    client: Client, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    store.available = False
    client.submit("t", 1)
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < 5


# Settings

ENVIRONMENT = {
    "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "localhost:1",
    "ONCEPOOL_KAFKA_TOPICS": " orders , payments",
    "ONCEPOOL_REDIS_URL": "redis://localhost:1/0",
    "ONCEPOOL_REDIS_PREFIX": "shop",
}


def test_a_client_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client.from_env(ENVIRONMENT) as client:
        assert client._topic == "orders"
        assert client._store.prefix == "shop"  # type: ignore[attr-defined]
        assert (client._channel or "").startswith("shop:hints:")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ONCEPOOL_KAFKA_TOPIC", "others")
    monkeypatch.delenv("ONCEPOOL_REDIS_PREFIX")
    with Client.from_env(hints=False) as client:
        assert client._topic == "others"
        assert client._store.prefix == "oncepool"  # type: ignore[attr-defined]
        assert client._channel is None


def test_what_is_missing_in_the_environment_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Client.from_env({"ONCEPOOL_KAFKA_TOPICS": ","})
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_TOPIC ", "KAFKA_TOPICS", "REDIS_URL"):
        assert f"ONCEPOOL_{name}" in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        Client.from_env({}, kafka="a", topic="b")
    assert str(caught.value) == "not set in the environment: ONCEPOOL_REDIS_URL"


@pytest.mark.parametrize(
    "properties, message",
    [
        ({"bootstrap.servers": "a", "transactional.id": "x"}, "transactional.id"),
        ({"delivery.report.only.error": True}, "accepted"),
        ({"no.such.property": 1}, "no.such.property"),
    ],
)
def test_kafka_properties_that_do_not_work(
    store: MemoryStatusStore, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Client(properties, store, "requests")


def test_kafka_properties_of_ones_own(store: MemoryStatusStore) -> None:
    with Client({"bootstrap.servers": "localhost:1", "linger.ms": 50}, store, "requests"):
        pass


def test_hints_may_be_any_object_with_its_methods(store: MemoryStatusStore) -> None:
    hints: Hints = store.subscribe("channel")
    hints.close()
