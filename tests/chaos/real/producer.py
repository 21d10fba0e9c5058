"""The producer under chaos: sends, reads statuses from Redis, sends again, and keeps the ledger.

It follows docs/contract.md and imports nothing of the project.
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import redis
from confluent_kafka import KafkaException, Producer

from tests.chaos.real.pickled import Pickled
from tests.chaos.real.traffic import EFFECTS, Item, Kind, Traffic
from tests.chaos.real.witness import WITHOUT_ROW

FINAL = {"done", "rejected", "superseded"}
SETTLED = FINAL | {"failed", "in_doubt", "dead", "cancelled"}
AT_ONCE = 250
"""Statuses read in a turn, at most: the gates have their work from the same process."""
TURN = 0.05
READ_EVERY = 0.25
"""Seconds from one look at a status to the next one."""
LONGEST = 120.0


@dataclass(slots=True)
class Copy:
    """One message that the broker has confirmed."""

    id: str
    kind: Kind
    number: int
    """0: the first one of its item."""
    partition: int
    offset: int
    at: float


@dataclass(slots=True)
class Pending:
    """A request without its answer."""

    item: Item
    first: float
    due: float
    pause: float
    timestamp: int
    sends: int = 1
    refused: str = ""
    """`v` of the last status that asked for another send."""
    heard: str = ""
    """`v` of the last status that said that it is at work: the same one again is no news."""


@dataclass
class SendLedger(Pickled):
    """What was sent, and what the producer was told."""

    items: dict[str, Item] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    unplaced: list[tuple[Copy, Any]] = field(default_factory=list)
    """Copies whose offset nobody has told, each with its message: see unplaced.py."""
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id -> state and code that ended it for the producer."""
    answered: list[tuple[float, float]] = field(default_factory=list)
    """(first sent, answered), seconds since the epoch, of each request."""
    ended_at: dict[str, float] = field(default_factory=dict)
    """When each was told of its end, or sent again all the same."""
    resends: Counter[str] = field(default_factory=Counter)
    """By what made it send again."""
    refusals: list[tuple[float, str, str]] = field(default_factory=list)
    """(when seen, id, state/code) of each settled status that asked for another send."""


class ChaosProducer:
    """Sends `rate` requests a second, at most `window` without an answer, in a thread of its own.

    `patience`: seconds without news after which a request is sent again, doubling.
    """

    def __init__(
        self, traffic: Traffic, *, kafka: str, redis_port: int, topic: str, prefix: str,
        rate: float, window: int, patience: float,
    ) -> None:  # fmt: skip
        self.ledger = SendLedger()
        self.pending: dict[str, Pending] = {}
        self._traffic, self._topic, self._prefix = traffic, topic, prefix
        self._rate, self._window, self._patience = rate, window, patience
        self._random = random.Random(traffic.seed)
        self._kafka = Producer({
            "bootstrap.servers": kafka, "acks": "all", "linger.ms": 100, "enable.idempotence": True,
            "partitioner": "murmur2_random", "message.timeout.ms": 120_000, "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        self._redis = redis.Redis(port=redis_port, socket_timeout=2, socket_connect_timeout=1)
        self._sending, self._over = threading.Event(), threading.Event()
        self._sending.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._turn: deque[str] = deque()
        self._doubted: deque[str] = deque()
        """Ids that were answered, and that are to be sent again all the same."""
        self.trouble: BaseException | None = None
        self.elsewhere: Callable[[Item], bool] = lambda _: False
        """Takes some of the requests, to send them on another way."""

    def start(self) -> None:
        self._thread.start()

    def quiet(self) -> None:
        """Nothing new any more; what is pending goes on, and is not waited for longer than once."""
        self._sending.clear()
        for pending in list(self.pending.values()):
            pending.due = min(pending.due, time.time() + self._patience)

    def told_since(self, since: float) -> list[str]:
        """Ids with a row whose end was told, or that were sent again all the same, since then."""
        return [
            name for name, at in list(self.ledger.ended_at.items())
            if at >= since and EFFECTS.get(self.ledger.items[name].type) != "none"
        ]  # fmt: skip

    def doubt(self, ids: list[str]) -> None:
        """Has these sent again, though their end was told."""
        self._doubted.extend(ids)

    def end(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._kafka.flush(30)

    def _run(self) -> None:
        began, made = time.monotonic(), 0
        try:
            while not self._over.is_set():
                now = time.monotonic()
                if self._sending.is_set():
                    wanted = int((now - began) * self._rate) - made
                    room = self._window - len(self.pending)
                    for _ in range(max(0, min(wanted, room, 200))):
                        self._first(self._traffic.next())
                        made += 1
                    if wanted > room:  # what there was no room for is not made up for
                        began, made = now, 0
                self._kafka.poll(0)
                self._read()
                self._again()
                self._send_doubted()
                time.sleep(TURN)
        except BaseException as error:  # noqa: BLE001 - told by who waits
            self.trouble = error

    def _first(self, item: Item) -> None:
        now = time.time()
        stamp = item.timestamp or time.time_ns() // 1_000_000
        if item.kind is Kind.REQUEST:
            self.ledger.items[item.id] = item
            if self.elsewhere(item):
                return
            self.pending[item.id] = Pending(item, now, now + self._patience, self._patience, stamp)
            self._turn.append(item.id)
        self._send(item, 0, stamp)
        if item.kind is Kind.REQUEST and self._random.random() < 0.01:
            self._send(item, 1, stamp)  # a copy that nobody needed

    def _send(self, item: Item, number: int, stamp: int) -> None:
        sent = time.time()

        def confirmed(error: Any, message: Any) -> None:
            if error is not None:
                return  # where it is there all the same, it has no copy in the ledger
            offset = message.offset()
            copy = Copy(item.id, item.kind, number, message.partition(), offset or 0, sent)
            if offset is None:
                self.ledger.unplaced.append((copy, message))
            else:
                self.ledger.copies.append(copy)

        while True:
            try:
                self._kafka.produce(
                    self._topic, item.value, item.key, headers=item.headers, timestamp=stamp,
                    on_delivery=confirmed,
                )  # fmt: skip
                return
            except BufferError:
                self._kafka.poll(0.1)
            except KafkaException:
                return

    def _read(self) -> None:
        """Statuses of some of the pending requests, in turn."""
        due = math.ceil(len(self._turn) * TURN / READ_EVERY)
        turn = [self._turn.popleft() for _ in range(min(AT_ONCE, due))]
        ids = [name for name in turn if name in self.pending]
        if not ids:
            return
        try:
            values = self._redis.mget([f"{self._prefix}:status:{name}" for name in ids])
        except redis.RedisError:
            self._turn.extend(ids)
            return
        for name, value in zip(ids, values, strict=True):
            if value is not None:
                self._hear(self.pending[name], json.loads(value))
        self._turn.extend(name for name in ids if name in self.pending)

    def _hear(self, pending: Pending, status: dict[str, Any]) -> None:
        item, now, state = pending.item, time.time(), status["state"]
        if (state in FINAL or state in item.ends) and status["code"] not in WITHOUT_ROW:
            del self.pending[item.id]
            self.ledger.ends[item.id] = (state, status["code"])
            self.ledger.ended_at[item.id] = now
            self.ledger.answered.append((pending.first, now))
            wanted = item.type == "move" and state == "done" and self._random.random() < 0.005
            if wanted and (other := self._traffic.conflict(item)) is not None:
                self._send(other, 0, time.time_ns() // 1_000_000)
        elif state in ("waiting", "running"):
            if (news := f"{status['v']} {status.get('retry_at')}") != pending.heard:
                pending.heard = news
                pending.due = now + self._patience
                if status.get("retry_at"):
                    until = datetime.fromisoformat(status["retry_at"]).timestamp()
                    pending.due = max(pending.due, until + self._patience)
        elif state in SETTLED and status["v"] != pending.refused and state != "dead":
            pending.refused = status["v"]
            pending.due = min(pending.due, now + 0.5)
            self.ledger.refusals.append((now, item.id, f"{state}/{status['code']}"))

    def _send_doubted(self) -> None:
        for _ in range(min(200, len(self._doubted))):
            self.ledger.resends["doubted"] += 1
            item = self.ledger.items[self._doubted.popleft()]
            self.ledger.ended_at[item.id] = time.time()
            self._send(item, 1, time.time_ns() // 1_000_000)

    def _again(self) -> None:
        now = time.time()
        for pending in [p for p in self.pending.values() if p.due <= now]:
            self.ledger.resends["refused" if pending.refused else "silence"] += 1
            longest = LONGEST if self._sending.is_set() else self._patience
            pending.pause = min(pending.pause * 2, longest)
            pending.due = now + pending.pause
            self._send(pending.item, pending.sends, pending.timestamp)
            pending.sends += 1
