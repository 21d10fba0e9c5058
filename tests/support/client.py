"""A client without services: its producer, a consumer that answers, and waits in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError

from feedback import AsyncClient, Client, DeliveryFailed, Status
from feedback.client.delivery import _GIVEN_UP
from feedback.client.message import KafkaMessage, draft
from feedback.client.pending import Submission
from feedback.client.send_clock import SendClock
from feedback.contract.envelope import Envelope, read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusFields, StatusWrite
from tests.support import eventually

GIVEN_UP = _GIVEN_UP.str()
"""What is said of a request of which a client that was closed knows nothing more."""


def drafted(
    type: Any, payload: Any, *, reply_to: str | None = None, **options: Any
) -> tuple[KafkaMessage, Submission]:
    """What a client makes of a request that it has not sent before."""
    return draft(
        type, payload, topic="requests", reply_to=reply_to, clock=SendClock(),
        earlier=lambda _: None, **options,
    )  # fmt: skip


class FakeProducer:
    """Keeps messages; confirms them when polled, unless it is told otherwise."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.room = 1_000
        self.refused = 0
        self.confirming = threading.Event()
        self.confirming.set()
        self.error: str | None = None
        """What is reported of each message instead of its arrival."""
        self.code = KafkaError._MSG_TIMED_OUT
        """Of that: no broker has said anything, unless it is set to something else."""
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
                self.refused += 1
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
        while len(self) and time.monotonic() < end:
            self.poll(0.01)
        return len(self)

    def purge(self) -> None:
        self._report("purged")
        self.confirming.set()

    def _report(self, said: str | None) -> int:
        error = None if said is None else KafkaError(self.code, said)
        with self._lock:
            reports, self._open = self._open, []
            self._reporting += len(reports)
        for report in reports:
            report(error, None)
        with self._lock:
            self._reporting -= len(reports)
        return len(reports)

    def __len__(self) -> int:
        with self._lock:
            return len(self._open) + self._reporting

    def envelopes(self) -> list[Envelope]:
        return [
            read(("t", 0, 0, m["timestamp"], m["key"], m["value"], m["headers"], None, None))
            for m in self.sent
        ]


class AnsweringConsumer:
    """Says of requests what a consumer would."""

    def __init__(self, store: MemoryStatusStore, producer: FakeProducer) -> None:
        self.store = store
        self.producer = producer

    def say(self, id: str, state: State, run: int = 1, *, hint: bool = True, **fields: Any) -> None:
        sent = next((e for e in reversed(self.producer.envelopes()) if e.id == id), None)
        digest = fields.pop("fingerprint", None)
        if digest is None and sent is not None:
            digest = fingerprint(sent.type, sent.payload or b"", sent.options.content_type)
        bump = fields.pop("bump", False)
        value = StatusFields(
            id,
            "t" if sent is None else sent.type,
            state,
            run,
            code=fields.pop("code", "ok"),
            attempt=1,
            at=datetime.now(UTC),
            fingerprint=digest,
            **fields,
        ).encode()
        reply_to = sent.reply_to if sent is not None and hint else None
        self.store.write([StatusWrite(id, value, 3600, bump, reply_to)])


def waiting(client: Client, id: str) -> bool:
    """Some thread waits for that id."""
    return id in client._waits._watches


def holds_nothing(client: AsyncClient) -> bool:
    """No wait, no place in a queue, nothing to read."""
    return (
        not client._waits._watches
        and client._waits._schedule.pause(0.0) is None
        and not client._deliveries._wakes
        and not client._turn.locked()
    )


def begin(
    pool: ThreadPoolExecutor, call: Callable[..., Status], *args: Any, **options: Any
) -> Future[Status]:
    """Calls a method of the client in another thread."""
    return pool.submit(call, *args, **options)


def answering(producer: FakeProducer, answers: list[Callable[[str], None]]) -> threading.Thread:
    """Gives the n-th answer when the n-th message has been sent."""

    def run() -> None:
        for index, answer in enumerate(answers):
            sent = eventually(lambda: producer.envelopes()[index:])  # noqa: B023  (called at once)
            answer(sent[0].id)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@asynccontextmanager
async def opened(
    producer: FakeProducer, store: MemoryStatusStore, **options: Any
) -> AsyncIterator[AsyncClient]:
    """An AsyncClient that is closed, whatever its producer says by then."""
    made = AsyncClient(producer, store, "requests", **{"queue_timeout": 0.2, **options})
    try:
        yield made
    finally:
        producer.confirming.set()
        producer.error = None
        with suppress(DeliveryFailed):
            await made.close(5)
