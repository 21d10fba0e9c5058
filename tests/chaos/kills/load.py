"""A steady flow of keyed requests, and some malformed messages; notes what has arrived."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping

import orjson
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

KEYS = 200
MALFORMED = 0.01
STEPS: Mapping[str, float] = {"step": 1.0}


class Load:
    """Sends in a thread of its own, each request once."""

    def __init__(
        self, kafka: str, topic: str, rate: float, seed: int, seconds: float, *,
        kinds: Mapping[str, float] = STEPS,
    ) -> None:  # fmt: skip
        """`kinds`: types of `tests.support.steps_app`, and how many of each to one another."""
        self._topic, self._rate, self._seconds = topic, rate, seconds
        self._kinds = kinds
        self._random = random.Random(seed)
        self._producer = Producer(
            {"bootstrap.servers": kafka, "linger.ms": 5, "enable.idempotence": True}
        )
        self.sent: dict[str, str] = {}
        """Type by id of what has arrived."""
        self.malformed: set[tuple[int, int]] = set()
        """(partition, offset) of each malformed message that has arrived."""
        self.failed = 0
        self._numbers: Counter[int] = Counter()
        self._resting = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def stop(self) -> None:
        """Sends nothing more; returns once all has arrived."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._producer.flush(60)

    def rest(self, *, resting: bool) -> None:
        """Sends nothing for a while, and goes on."""
        self._resting = resting

    @property
    def arrived(self) -> int:
        """How many messages have arrived."""
        return len(self.sent) + len(self.malformed)

    def _run(self) -> None:
        last, due = time.monotonic(), 0.0
        while not self._stop.wait(0.02):
            now = time.monotonic()
            due += 0 if self._resting else (now - last) * self._rate
            last = now
            while due >= 1:
                due -= 1
                self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        key = self._random.randrange(KEYS)
        if self._random.random() < MALFORMED:
            self._producer.produce(
                self._topic, b"{}", str(key), headers={"ce_type": b"step"}, on_delivery=self._bad
            )
            return
        [kind] = self._random.choices(list(self._kinds), list(self._kinds.values()))
        self._numbers[key] += 1
        number = self._numbers[key]
        name = f"{key}-{number}"
        value = orjson.dumps({"key": str(key), "number": number, "seconds": self._seconds})

        def told(error: KafkaError | None, _message: Delivered) -> None:
            if error is None:
                self.sent[name] = kind
            else:
                self.failed += 1

        self._producer.produce(
            self._topic, value, str(key), on_delivery=told,
            headers={"ce_id": name.encode(), "ce_type": kind.encode()},
        )  # fmt: skip

    def _bad(self, error: KafkaError | None, message: Delivered) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            self.malformed.add((partition, offset))
        else:
            self.failed += 1
