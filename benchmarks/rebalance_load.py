"""A producer with a steady load, which looks up every answer and sends again what got none."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore

TYPE = b"bench.insert"
PAYLOAD = b'{"amount":5,"currency":"EUR","customer":"c-1234"}'
TICK = 0.005
LOOK = 1.0
"""Seconds from a send to the first look at the answer, and between two looks."""
LOOKS = 500
"""Statuses read at once."""
OPEN = 20_000
"""Requests without an answer at which no more are sent."""


class Copy(NamedTuple):
    """Where one message of a request lies."""

    partition: int
    offset: int


@dataclass(slots=True)
class Asked:
    """One request, as its producer knows it. Times are seconds since the epoch."""

    id: str
    first: float
    """When it was sent first."""
    sent: float
    """When it was sent last."""
    copies: list[Copy] = field(default_factory=list)
    """In the order in which the broker confirmed them."""
    answer: str | None = None
    """The settled state; `failed` is not among them, as the request is sent again then."""
    refused: int = 0
    """Copies that consumers said they could not run."""


class SendingPace(NamedTuple):
    """What is sent at present: ids `<name>-<n>`, `rate` a second (inf: as answers come)."""

    name: str
    rate: float
    begun: float


class Load:
    """One producer of one topic, in a thread of its own."""

    def __init__(
        self, kafka: str, redis: str, topic: str, prefix: str, answer_timeout: float
    ) -> None:
        self._topic = topic
        self._answer_timeout = answer_timeout
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "enable.idempotence": True,
                "linger.ms": 5,
                # As the client has it: copies of an id go to one partition, in their order.
                "partitioner": "murmur2_random",
            }
        )
        # A machine that is starved of CPU is no reason to give up.
        self._store = RedisStatusStore(redis, prefix, timeout=10.0)
        self.asked: list[Asked] = []
        """All requests, in the order in which they were sent. Read it when all is settled."""
        self._watched: deque[tuple[float, Asked]] = deque()
        """When to look next, ascending."""
        self._open = 0
        self._pace: SendingPace | None = None
        self._sent = 0
        """Requests of this pace."""
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """Requests that wait for their answer. Raises RuntimeError where the producer broke."""
        if self._failure is not None:
            raise RuntimeError("the producer broke") from self._failure
        return self._open

    def begin(self, name: str, rate: float = math.inf) -> float:
        """Begins to send; returns when that was."""
        with self._turn:
            self._sent = 0
            self._pace = SendingPace(name, rate, time.time())
            return self._pace.begun

    def end(self) -> float:
        """Sends no more new requests; returns when that was."""
        with self._turn:
            self._pace = None
            return time.time()

    def settle(self, seconds: float) -> bool:
        """Waits until every request has its answer; False where that takes longer."""
        end = time.monotonic() + seconds
        while self.open:
            if time.monotonic() > end:
                return False
            time.sleep(TICK)
        return True

    def close(self) -> None:
        """Gives up what is open."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)
        self._store.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(TICK):
                with self._turn:
                    self._send_due(time.time())
                    self._look(time.time())
                self._producer.poll(0)
        except Exception as error:  # noqa: BLE001 - told to whoever asks what is open
            self._failure = error

    def _send_due(self, now: float) -> None:
        if (pace := self._pace) is None:
            return
        # By the clock, so that a moment without a CPU is made up for.
        due = min((now - pace.begun) * pace.rate, self._sent + OPEN - self._open)
        while self._sent < due:
            asked = Asked(f"{pace.name}-{self._sent:08d}", now, now)
            self.asked.append(asked)
            self._sent += 1
            self._open += 1
            self._send(asked, now)

    def _send(self, asked: Asked, now: float) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise RuntimeError(f"the broker did not take {asked.id}: {error}")
            asked.copies.append(Copy(message.partition() or 0, message.offset() or 0))

        key = asked.id.encode()
        self._producer.produce(
            self._topic, PAYLOAD, key, headers=[("ce_id", key), ("ce_type", TYPE)],
            timestamp=int(asked.first * 1000), on_delivery=report,
        )  # fmt: skip
        asked.sent = now
        self._watched.append((now + LOOK, asked))

    def _look(self, now: float) -> None:
        due: list[Asked] = []
        while self._watched and len(due) < LOOKS and self._watched[0][0] <= now:
            due.append(self._watched.popleft()[1])
        if not due:
            return
        for asked, status in zip(due, self._store.read([one.id for one in due]), strict=True):
            if status is None or not status.settled:
                again = now - asked.sent > self._answer_timeout
            elif status.state is State.FAILED:
                # Said of the copy sent last, or of one before it?
                again = status.at.timestamp() > asked.sent
                asked.refused += again
            else:
                asked.answer = status.state
                self._open -= 1
                continue
            if again:
                self._send(asked, now)
            else:
                self._watched.append((now + LOOK, asked))
