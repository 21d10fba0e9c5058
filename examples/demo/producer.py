"""The demo's producer: sends the plan, and each request again until it has its answer."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka

from examples.demo.book import ConfirmedMessage, QueuePlan
from examples.demo.item import MessageKind, PlannedMessage, Way
from feedback import Client
from feedback.client.call import ResendTimer
from feedback.client.producer import connect
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.status.status import Status

DELIVERY_TIMEOUT = 60.0
READ_AT_ONCE = 500
SEND_AT_ONCE = 400
"""Messages of the plan in one turn: each asks Redis for its id first, which takes milliseconds on a
busy machine, and the story looks at its answers between two turns only."""


@dataclass(slots=True)
class Waiting:
    """A request without its answer."""

    item: PlannedMessage
    timer: ResendTimer
    refused: str = ""
    """`v` of the last status that asks for another send."""
    waits_until: datetime | None = None
    """`retry_at` of the last status that was heard of."""


class DemoProducer:
    """Keeps at most `window` requests without an answer. For one thread; close() at the end.

    Nothing heard for `patience` seconds: sent again, with the same id. So is a request whose run
    failed (it runs again) or is in doubt (the check of its handler finds out). One that waits is
    left alone until its time, one that is dead until an operator has moved it.
    """

    def __init__(
        self, plan: Iterable[PlannedMessage], kafka: str, redis: str, name: str, *,
        window: int, patience: float,
    ) -> None:  # fmt: skip
        """`name`: topic, and prefix in Redis."""
        self._plan = deque(plan)
        self._held: list[PlannedMessage] = []
        self._waiting: dict[str, Waiting] = {}
        self._window, self._patience = window, patience
        self._topic = name
        self._kafka = Recorder(kafka)
        self._client = Client(kafka=self._kafka, redis=redis, topic=name, prefix=name)
        self.planned = len(self._plan)
        self.queue_open = True
        """Whether requests for the waiting queue may be sent; if not, nothing behind them is."""
        self.sent_again = 0
        self.answers: dict[str, str] = {}
        """Id -> end, as the item's `expected` says it."""
        self.states: Counter[str] = Counter()
        """How many requests stand in which state; `sent` is where no status was seen."""
        self.waits: dict[str, QueuePlan] = {}
        """What was sent for the waiting queue."""
        self._hopeless = {item.id for item in self._plan if item.way is Way.DEAD}
        self._seen: dict[str, str] = {}

    @property
    def messages(self) -> list[ConfirmedMessage]:
        """What the broker has confirmed."""
        return self._kafka.messages

    @property
    def sent(self) -> int:
        """Messages of the plan that were sent."""
        return self.planned - len(self._plan) - len(self._held)

    @property
    def over(self) -> bool:
        """All was sent, and every request has its answer."""
        return not (self._plan or self._held or self._waiting)

    @property
    def hopeless_are_dead(self) -> bool:
        """Every request that nobody could help was told so."""
        return not self._hopeless

    def send(self, now: float) -> None:
        """Sends again what is due, then what there is room for."""
        for waiting in self._waiting.values():
            if waiting.timer.due <= now:
                waiting.timer.sent(now)
                self.sent_again += 1
                self._send(waiting.item, again=True)
        # Before its request is done, the other payload might run in its place.
        ready = [item for item in self._held if item.id in self.answers]
        self._held = [item for item in self._held if item.id not in self.answers]
        for item in ready:
            self._send(item)
        least = max(0, len(self._plan) - SEND_AT_ONCE)
        while len(self._plan) > least and len(self._waiting) < self._window:
            if self._plan[0].queued and not self.queue_open:
                break
            item = self._plan.popleft()
            if item.kind is MessageKind.CONFLICT:
                self._held.append(item)
                continue
            if item.id is not None and item.kind is MessageKind.FIRST:
                self._note(item.id, item)
            self._send(item)
            if item.id is not None and item.kind is not MessageKind.DUPLICATE:
                self._waiting[item.id] = Waiting(item, ResendTimer(now, self._patience))
                self._see(item.id, "sent")

    def read(self, now: float) -> None:
        """Reads the statuses of all requests that wait."""
        ids = list(self._waiting)
        for start in range(0, len(ids), READ_AT_ONCE):
            try:
                statuses = self._client.statuses(ids[start : start + READ_AT_ONCE])
            except StoreUnavailable:
                return  # a busy machine: the next look will tell
            for status in statuses:
                if status is not None:
                    self._take(status, now)

    def flush(self) -> None:
        """Waits until the broker has confirmed all. Raises DeliveryFailed."""
        self._client.flush()

    def close(self) -> None:
        """Closes the client."""
        self._client.close()

    def _send(self, item: PlannedMessage, *, again: bool = False) -> None:
        self._kafka.item, self._kafka.again = item, again
        if item.headers is None:
            self._client.submit(
                item.type, item.value, request_id=item.id, key=item.key, timeout=item.timeout,
                not_before=self._not_before(item.id),
            )  # fmt: skip
        else:
            key = None if item.id is None else item.id.encode()
            headers = list(item.headers)
            self._kafka.produce(self._topic, key=key, value=item.value, headers=headers)

    def _note(self, id: str, item: PlannedMessage) -> None:
        if not item.queued:
            return
        # Named once: what is sent again is the same message.
        delay = None if item.delay is None else timedelta(seconds=item.delay)
        not_before = None if delay is None else datetime.now(UTC) + delay
        self.waits[id] = QueuePlan(item.way, not_before, item.attempt, item.follows)

    def _not_before(self, id: str | None) -> datetime | None:
        waits = self.waits.get(id or "")
        due = None if waits is None else waits.not_before
        return due if due is not None and due > datetime.now(UTC) else None

    def _take(self, status: Status, now: float) -> None:
        waiting = self._waiting[status.id]
        self._see(status.id, str(status.state))
        end = str(status.state) if status.state == "done" else f"{status.state}/{status.code}"
        if status.state is State.DEAD and waiting.item.way is Way.DEAD:
            if status.id in self._hopeless:
                self._hopeless.remove(status.id)
                waiting.timer.heard(now)
        elif status.state is State.WAITING:
            if status.retry_at != waiting.waits_until:
                waiting.waits_until = status.retry_at
                waiting.timer.heard(now, _seconds_until(status.retry_at))
        elif status.final or end == waiting.item.expected:
            del self._waiting[status.id]
            self.answers[status.id] = end
        elif status.settled and status.v != waiting.refused:
            waiting.refused = status.v
            waiting.timer.refused(now)

    def _see(self, id: str, state: str) -> None:
        self.states[self._seen.get(id, state)] -= id in self._seen
        self.states[state] += 1
        self._seen[id] = state


def _seconds_until(time: datetime | None) -> float:
    return 0.0 if time is None else (time - datetime.now(UTC)).total_seconds()


class Recorder:
    """A Kafka producer that notes where each message came to lie; the client sends through it."""

    def __init__(self, kafka: str) -> None:
        self._producer = connect(kafka, DELIVERY_TIMEOUT)
        self.item: PlannedMessage | None = None
        """What is being sent."""
        self.again = False
        self.messages: list[ConfirmedMessage] = []

    def produce(self, topic: str, **arguments: Any) -> None:
        """Queues a message of the item that is being sent."""
        assert self.item is not None  # noqa: S101 - only _send sends
        item, again = self.item, self.again
        told = arguments.pop("on_delivery", None)

        def report(error: object, message: confluent_kafka.Message) -> None:
            # Runs in whichever thread polls; appending to a list needs no lock.
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self.messages.append(
                    ConfirmedMessage(item.kind, item.id, item.expected, again, partition, offset)
                )
            if told is not None:
                told(error, message)

        self._producer.produce(topic, **arguments, on_delivery=report)

    def poll(self, timeout: float) -> int:
        """Serves delivery reports."""
        return self._producer.poll(timeout)

    def flush(self, timeout: float) -> int:
        """Waits for delivery reports; how many are missing."""
        return self._producer.flush(timeout)

    def purge(self) -> None:
        """Gives up what is not confirmed."""
        self._producer.purge()

    def __len__(self) -> int:
        """How many messages are not confirmed."""
        return len(self._producer)
