"""Result records, as the relay reads them: in batches, committed once their rows are written."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from feedback.broker_probe import LOST, BrokerProbe
from feedback.client.kafka_log import OutageLog
from feedback.client.result import Result
from feedback.client.result_consumer import shared
from feedback.contract.payloads import write_json
from feedback.errors import StoreUnavailable
from feedback.outbox.relay.answers import MOST_BYTES, RequestKey
from feedback.status.status import Status

log = logging.getLogger("oncepool.relay")

Position: TypeAlias = list[TopicPartition]

AT_ONCE: Final = 500
_SLICE: Final = 20
_MOST_KEPT: Final = 5_000
PATIENCE: Final = 30.0
"""Seconds for which a record is kept whose row is not marked as sent yet, from when somebody was
last seen to be sending it."""
LONGEST: Final = 120.0
"""Seconds after which it is kept no longer for that: meanwhile the next ones may have no room.
Its row, sent again, brings it again."""
_QUIET: Final = 60.0
OMITTED: Final = "the result was too large for the results topic: the consumers' journal has it"


class RecordSource:
    """One results topic, in a group that all relays of an outbox's sender share."""

    def __init__(self, topic: str, group: str, kafka: Mapping[str, Any]) -> None:
        """`group`: without the outbox's database, which serve() tells."""
        self._topic = topic
        self._group = group
        self._properties = {
            **shared(kafka),
            "client.id": "oncepool-relay",
            "group.id": group,
            "enable.auto.commit": False,
            # Answers to what was sent before the group began are among them.
            "auto.offset.reset": "earliest",
        }
        self._consumer: Any = None
        self._probe = BrokerProbe(self._properties)
        self._foreign = ForeignRecords()

    def serve(self, database: str) -> None:
        """Reads for the outbox in this database: in another group than for others of its name."""
        group = f"{self._group}-{database}"
        if group != self._properties["group.id"]:
            self.close()
            self._properties["group.id"] = group

    def poll(self, timeout: float) -> list[Result]:
        """What has come, within so many seconds. Raises StoreUnavailable."""
        try:
            if self._consumer is None:
                self._consumer = Consumer(self._probe.properties(), logger=OutageLog())
                self._consumer.subscribe([self._topic])
            if self._probe.lost(self._consumer):
                self._leave()
                raise StoreUnavailable(f"results can't be read, another client takes over: {LOST}")
            return self._read(time.monotonic() + timeout)
        except KafkaException as error:
            raise StoreUnavailable(f"results can't be read: {error.args[0].str()}") from error

    def _read(self, end: float) -> list[Result]:
        """In slices, as nobody knows how large the next records are."""
        found: list[Result] = []
        number = size = 0
        while number < AT_ONCE and size < MOST_BYTES:
            self._probe.before_serving()
            messages = self._consumer.consume(_SLICE, max(0.0, end - time.monotonic()))
            found += results_in(messages, self._foreign)
            if messages:
                self._probe.heard_from()
            number += len(messages)
            size += sum(len(message.value() or b"") for message in messages)
            if len(messages) < _SLICE:
                break
        return found

    @property
    def away(self) -> str | None:
        """Why nothing comes, where no broker was heard since all were away."""
        seconds = self._probe.away_for
        return None if seconds is None else "no broker answers"

    def position(self) -> Position:
        """Up to where it was polled."""
        if self._consumer is None:
            return []
        try:
            return list(self._consumer.position(self._consumer.assignment()))
        except KafkaException:
            return []  # another relay has them now

    def commit(self, position: Position) -> None:
        """All up to there is done."""
        if self._consumer is None:
            return
        try:
            mine = {(one.topic, one.partition) for one in self._consumer.assignment()}
            read = [p for p in position if p.offset >= 0 and (p.topic, p.partition) in mine]
            if read:
                self._consumer.commit(offsets=read, asynchronous=True)
        except KafkaException:
            return  # not now: records that come again find nothing to do

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._probe.leave(consumer)

    def close(self) -> None:
        """Leaves the group."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def key_of(result: Result) -> RequestKey:
    """Whose record it is."""
    return RequestKey(result.id, result.type)


class _Kept(NamedTuple):
    came: float
    until: float
    size: int
    """Of the result, in bytes."""
    result: Result


class KeptRecords:
    """Records by key, until their rows have ended or are known to be no rows. Pure."""

    def __init__(self) -> None:
        self._kept: dict[RequestKey, _Kept] = {}

    def add(self, results: Sequence[Result], now: float) -> None:
        """They have come; the later one of a key counts."""
        for result in results:
            key = key_of(result)
            before = self._kept.get(key)
            if before is None or result.at >= before.result.at:
                size = len(write_json(result.result))
                self._kept[key] = _Kept(now, now + PATIENCE, size, result)

    def look(self, now: float) -> list[Result]:
        """What to look at; without what nobody has waited for."""
        self._kept = {key: kept for key, kept in self._kept.items() if kept.until > now}
        return [kept.result for kept in self._kept.values()]

    def fading(self, now: float) -> list[RequestKey]:
        """What is not kept for long any more."""
        return [key for key, kept in self._kept.items() if kept.until - now < PATIENCE / 2]

    def renew(self, keys: Iterable[RequestKey], now: float) -> None:
        """Their patience begins again, until LONGEST is over."""
        for key in keys:
            kept = self._kept[key]
            until = min(now + PATIENCE, kept.came + LONGEST)
            self._kept[key] = kept._replace(until=until)

    def wait(self, keys: Iterable[RequestKey], now: float) -> None:
        """They are kept anew, however long: their rows are there, and take nothing now."""
        for key in keys:
            self._kept[key] = self._kept[key]._replace(came=now, until=now + PATIENCE)

    def keep(self, keys: Sequence[RequestKey]) -> None:
        """Of the others nothing more is to be expected."""
        self._kept = {key: self._kept[key] for key in keys if key in self._kept}

    def keys(self) -> frozenset[RequestKey]:
        """Of all that is kept."""
        return frozenset(self._kept)

    @property
    def full(self) -> bool:
        """Whether nothing more is to be added for now."""
        size = sum(kept.size for kept in self._kept.values())
        return len(self._kept) >= _MOST_KEPT or size >= MOST_BYTES

    def __len__(self) -> int:
        return len(self._kept)


def as_status(result: Result) -> Status:
    """What a status would say. It names no payload, and a result that is left out is an error."""
    return Status(
        result.id, result.type, result.state, result.code, 0, 0, result.at, None, result.result,
        error=OMITTED if result.result_omitted else None,
    )  # fmt: skip


class LeftOut:
    """Counts what is passed over: told with the first, then once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = -math.inf
        self._untold = 0

    def count(self) -> int:
        """There is one more. How many were not told of yet; 0 while it is too early for a line."""
        self._untold += 1
        if self._clock() < self._quiet_until:
            return 0
        untold, self._untold = self._untold, 0
        self._quiet_until = self._clock() + _QUIET
        return untold


class ForeignRecords:
    """What in a results topic is no record."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._left_out = LeftOut(clock)

    def tell(self, message: Message, problem: ValueError) -> None:
        """There is one."""
        if number := self._left_out.count():
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            log.warning("%d messages of a results topic left out, last %s: %s",
                number, place, problem)  # fmt: skip


def results_in(messages: Sequence[Message], foreign: ForeignRecords) -> list[Result]:
    """What the records say. Raises KafkaException where reading failed."""
    found = []
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        try:
            found.append(Result.decode(message.value()))
        except ValueError as problem:
            foreign.tell(message, problem)
    return found
