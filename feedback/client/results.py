"""Reading result records: what other systems subscribe to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from feedback.broker_probe import LOST, BrokerProbe
from feedback.client.forks import never_free
from feedback.client.kafka_log import OutageLog
from feedback.client.result_consumer import connect, properties
from feedback.client.result_positions import ResultPositions, hopeless
from feedback.contract.headers import check_name
from feedback.contract.payloads import parse_json, refuse_deep
from feedback.contract.states import State
from feedback.errors import ConfigurationError, Malformed, OncepoolError, ResultsFailed

log = logging.getLogger("oncepool.kafka")

_SLICE: Final = 0.2
_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """How a request ended, as a result record says. `at` (UTC) is when that was written."""

    id: str
    type: str
    state: State
    code: str
    result: Any
    at: datetime
    result_omitted: bool = False
    """There is a result, and it was too large for Kafka: the journal has it."""

    @classmethod
    def decode(cls, value: bytes | None) -> Result:
        """Reads a record's value. Raises ValueError for anything else."""
        try:
            fields = parse_json(value or b"")
            refuse_deep(value or b"", fields)
            return cls(
                id=check_name("id", fields["id"]),
                type=check_name("type", fields["type"]),
                state=State(fields["state"]),
                code=_code(fields["code"]),
                result=fields.get("result"),
                at=_time(fields["at"]),
                result_omitted=fields.get("result_omitted", False) is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, Malformed) as error:
            raise ValueError(f"not a result record: {error!r}") from None


def _code(given: Any) -> str:
    """As handlers may make them. PostgreSQL has no text for a zero character."""
    if not isinstance(given, str) or "\0" in given:
        raise ValueError(f"code is {given!r}")
    return given


def _time(given: Any) -> datetime:
    at = datetime.fromisoformat(given)
    if at.tzinfo is None:
        raise ValueError(f"at is {given}, without a time zone")
    return at.astimezone(UTC)


class ReadMessage(NamedTuple):
    """A message that was read, and what it says; None where it is no result record."""

    message: Any
    result: Result | None


class Results:
    """Result records, one after the other, without an end. A context manager; close it after use.

    At least once: a record may come twice, and two records of one request may change places; the
    one with the later `at` is how it stands. With a `group`, a record counts as handled when the
    next one is asked for, or with close(). For one thread; close() may come from another.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        topic: str,
        group: str | None,
        *,
        from_beginning: bool,
        closed: Callable[[Results], None],
    ) -> None:
        self._topic = topic
        self._group = group
        self._on_close = closed
        self._lock = threading.Lock()
        self._closed = False  # guarded by _lock, as is whatever the consumer is asked
        self._last: Any = None  # the message that is being handled
        self._late: OncepoolError | None = None  # to be told after what was read before it
        self._assigned: list[TopicPartition] | None = None  # and not known where to read on there
        self._ask_at = 0.0
        self._outages = OutageLog()
        self._probe = BrokerProbe(properties(kafka, group))
        self._consumer = connect(self._probe, self._outages)
        try:
            self._begin(group, from_beginning=from_beginning)
        except KafkaException as error:
            self._consumer.close()
            raise ResultsFailed(topic, error.args[0].str()) from None
        except BaseException:
            self._consumer.close()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Result:
        while not self._closed:
            result = self.poll(_SLICE)
            if result is not None:
                return result
        raise StopIteration

    def poll(self, timeout: float) -> Result | None:
        """The next record; None where none comes within `timeout` seconds, or when closed.

        Raises ResultsFailed where waiting does not help.
        """
        end = time.monotonic() + timeout
        while True:
            with self._lock:  # for a short while, so that close() is not kept waiting
                if self._closed:
                    return None
                result = self._next(max(0.0, min(_SLICE, end - time.monotonic())))
            if result is not None or time.monotonic() >= end:
                return result

    def close(self) -> None:
        """Ends the iteration, also one in another thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._handled()
            self._consumer.close()
        self._on_close(self)

    def forked(self) -> None:
        """Called in a process that was forked: nothing comes there any more."""
        self._lock = threading.Lock()  # a thread that was not copied may have held it
        self._closed = True
        never_free(self._consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more."""
        return self._closed

    def take(self, timeout: float, most: int) -> list[ReadMessage]:
        """The next records in their order, for `turn_to`; waits for the first `timeout` seconds.

        Raises ResultsFailed.
        """
        with self._lock:
            taken: list[ReadMessage] = []
            if self._closed:
                return taken
            self._handled()
            if (late := self._late) is not None:
                self._late = None
                raise late
            try:
                while len(taken) < most and (read := self._read(timeout)) is not None:
                    taken.append(read)
                    timeout = 0.0
            except OncepoolError as error:
                if not taken:
                    raise
                self._late = error
            return taken

    def turn_to(self, taken: ReadMessage) -> Result | None:
        """From now on this record is being handled; the one before it is."""
        self._handled()
        self._last = taken.message
        return taken.result

    def _next(self, timeout: float) -> Result | None:
        self._handled()
        read = self._read(timeout)
        return None if read is None else self.turn_to(read)

    def _read(self, timeout: float) -> ReadMessage | None:
        if self._probe.lost(self._consumer):
            self._begin_anew()
        self._read_on()
        message = self._consumer.poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if hopeless(error):
                raise ResultsFailed(self._topic, error.str())
            return None  # the library goes on trying
        self._outages.over()
        self._probe.heard_from()
        self._positions.read(message)
        try:
            return ReadMessage(message, Result.decode(message.value()))
        except ValueError as problem:
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            log.warning("message %s left out: %s", place, problem)
            return ReadMessage(message, None)

    def _begin(self, group: str | None, *, from_beginning: bool) -> None:
        self._positions = ResultPositions(
            self._consumer, self._topic, grouped=group is not None, from_beginning=from_beginning
        )
        self._join()

    def _join(self) -> None:
        if self._group is None:
            self._consumer.assign(self._positions.starts)
        else:
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )

    def _begin_anew(self) -> None:
        """With another client, where this one has come to."""
        try:
            another = connect(self._probe, self._outages)
        except ConfigurationError as error:  # a certificate's file is gone, say
            log.warning("%s: no other client can be made yet: %s", self._topic, error)
            self._probe.stays()
            return
        log.error("%s: another client reads on, this one is lost: %s", self._topic, LOST)
        # It may take a minute to find that it can tell nobody that it goes.
        threading.Thread(target=self._consumer.close, name="leave", daemon=True).start()
        self._consumer, self._assigned = another, None
        self._positions.go_on(self._consumer)
        self._join()

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._assigned, self._ask_at = assigned, 0.0
        # Where to read on is asked after the call that serves this: `list_topics` in a callback
        # takes from the call what the next callback needs, and that ends the process.
        with suppress(KafkaException):
            consumer.assign([])  # or the client would choose where

    def _on_revoke(self, consumer: Consumer, _revoked: list[TopicPartition]) -> None:
        if consumer is self._consumer:
            self._assigned = None

    def _read_on(self) -> None:
        """Reads in what was assigned, as soon as it is known where. Raises ResultsFailed."""
        if self._assigned is None or time.monotonic() < self._ask_at:
            return
        try:
            self._consumer.assign(self._positions.of(self._assigned))
        except KafkaException as error:
            self._ask_at = time.monotonic() + _PAUSE
            if hopeless(error.args[0]):
                raise ResultsFailed(self._topic, error.args[0].str()) from None
            log.warning("%s: where to read on is asked again: %s", self._topic, error.args[0].str())
        else:
            self._assigned = None

    def _handled(self) -> None:
        message, self._last = self._last, None
        if message is not None and self._group is not None:
            try:
                self._consumer.store_offsets(message)
            # Its partition is another reader's now, who reads it again; or this one was closed.
            except (KafkaException, RuntimeError):
                log.debug("offset of %s/%s not kept", message.topic(), message.partition())


class Subscriptions:
    """The open readers of one client."""

    def __init__(self, kafka: object, topic: str) -> None:
        self._kafka = {"bootstrap.servers": kafka} if isinstance(kafka, str) else kafka
        self._topic = topic
        self._lock = threading.Lock()
        self._open: set[Results] = set()  # guarded by _lock

    def open(self, group: str | None, topic: str | None, *, from_beginning: bool) -> Results:
        """A new reader. Raises ConfigurationError where it is not known what to read."""
        name = topic or self._topic
        if not name:
            raise ConfigurationError(
                "no results topic: name it here, or set ONCEPOOL_KAFKA_RESULTS_TOPIC"
            )
        if not isinstance(self._kafka, Mapping):
            raise ConfigurationError("results() needs to know the brokers: not only a producer")
        made = Results(self._kafka, name, group, from_beginning=from_beginning, closed=self._forget)
        with self._lock:
            self._open.add(made)
        return made

    def close(self) -> None:
        """Closes them all."""
        with self._lock:
            left = list(self._open)
        for results in left:
            results.close()

    def forked(self) -> None:
        """Called in a process that was forked."""
        for results in list(self._open):
            results.forked()

    def _forget(self, results: Results) -> None:
        with self._lock:
            self._open.discard(results)
