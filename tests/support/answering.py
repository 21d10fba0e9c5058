"""A consumer of a few lines on a real Kafka and a real Valkey, for tests of clients."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer

from feedback.contract.envelope import Envelope, read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.record import Record
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite


def answer(envelope: Envelope, state: State, run: int = 1, **fields: Any) -> StatusWrite:
    value = StatusFields(
        envelope.id,
        envelope.type,
        state,
        run,
        code=fields.pop("code", "ok"),
        attempt=1,
        at=datetime.now(UTC),
        fingerprint=fingerprint(
            envelope.type, envelope.payload or b"", envelope.options.content_type
        ),
        **fields,
    ).encode()
    return StatusWrite(envelope.id, value, 3600, reply_to=envelope.reply_to)


class Answering:
    """Reads a topic and answers each request `done` with its payload as the result.

    Type `lost` gets no answer the first time; `outage` is refused the first time.
    """

    def __init__(self, kafka: str, topic: str, store: RedisStatusStore) -> None:
        self.topic = topic
        self.store = store
        self.records: list[Record] = []
        self._seen: dict[str, int] = {}
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": f"{topic}-answering",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            first = self._consumer.poll(0.05)
            messages = [first, *self._consumer.consume(499, 0)] if first is not None else []
            writes = []
            for message in messages:
                if message.error() is None:
                    record = record_of(message)
                    self.records.append(record)
                    writes.extend(self._answer(read(record)))
            self.store.write(writes)

    def _answer(self, envelope: Envelope) -> list[StatusWrite]:
        number = self._seen[envelope.id] = self._seen.get(envelope.id, 0) + 1
        if envelope.type == "lost" and number == 1:
            return []
        if envelope.type == "outage" and number == 1:
            return [answer(envelope, State.FAILED, code="database_unavailable")]
        return [answer(envelope, State.DONE, result=envelope.payload)]


def record_of(message: Any) -> Record:
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers(),
        None,
        None,
    )
