"""Reading result records: what other systems subscribe to."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from feedback.client.forks import never_free
from feedback.client.kafka_log import OutageLog
from feedback.contract.payloads import parse_json
from feedback.contract.states import State
from feedback.errors import ConfigurationError, OncepoolError, ResultsFailed

log = logging.getLogger("oncepool.kafka")

_SLICE: Final = 0.2
_ANSWER: Final = 10.0
_ERRORS_ONLY: Final = 3  # syslog level: a client's producer properties draw warnings here
# Of what a client was given, these are nobody's but its producer's, or ours.
_NOT_FOR_US: Final = frozenset(
    {
        "group.id", "group.instance.id", "client.id", "transactional.id", "on_delivery",
        "group.protocol", "partition.assignment.strategy",  # assignments here are whole ones
    }
)  # fmt: skip
_HOPELESS: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._FATAL,  # noqa: SLF001 - their public names
        KafkaError._AUTHENTICATION,  # noqa: SLF001
    }
)


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
            return cls(
                id=fields["id"],
                type=fields["type"],
                state=State(fields["state"]),
                code=fields["code"],
                result=fields.get("result"),
                at=datetime.fromisoformat(fields["at"]),
                result_omitted=fields.get("result_omitted", False),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a result record: {error!r}") from None


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
        self._from_beginning = from_beginning
        self._on_close = closed
        self._lock = threading.Lock()
        self._closed = False  # guarded by _lock, as is whatever the consumer is asked
        self._trouble: OncepoolError | None = None
        self._last: Any = None  # the message that is being handled
        self._late: OncepoolError | None = None  # to be told after what was read before it
        self._starts: dict[int, TopicPartition] = {}
        self._outages = OutageLog()
        self._consumer = _connect(kafka, group, self._outages)
        try:
            self._begin()
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
        message = self._consumer.poll(timeout)
        if self._trouble is not None:
            raise self._trouble
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() in _HOPELESS:
                raise ResultsFailed(self._topic, error.str())
            return None  # the library goes on trying
        self._outages.over()
        try:
            return ReadMessage(message, Result.decode(message.value()))
        except ValueError as problem:
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            log.warning("message %s left out: %s", place, problem)
            return ReadMessage(message, None)

    def _begin(self) -> None:
        """Where it starts is settled here: what is written after this call will come."""
        self._starts = {part.partition: self._start(part) for part in self._partitions()}
        if self._group is None:
            self._consumer.assign(list(self._starts.values()))
        else:
            self._consumer.subscribe([self._topic], on_assign=self._on_assign)

    def _partitions(self) -> list[TopicPartition]:
        try:
            known = self._consumer.list_topics(self._topic, _ANSWER).topics[self._topic]
        except KafkaException as error:
            raise ResultsFailed(self._topic, error.args[0].str()) from None
        if known.error is not None:
            raise ResultsFailed(self._topic, known.error.str())
        return [TopicPartition(self._topic, number) for number in known.partitions]

    def _start(self, part: TopicPartition) -> TopicPartition:
        try:
            low, high = self._consumer.get_watermark_offsets(part, _ANSWER)
        except KafkaException as error:
            raise ResultsFailed(self._topic, error.args[0].str()) from None
        offset = low if self._from_beginning else high
        return TopicPartition(part.topic, part.partition, offset)

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        try:
            offsets = self._offsets(consumer)
            consumer.assign(
                [
                    TopicPartition(p.topic, p.partition, offsets.get(p.partition, OFFSET_BEGINNING))
                    for p in assigned
                ]
            )
        except KafkaException as error:  # callbacks never raise
            self._trouble = ResultsFailed(self._topic, error.args[0].str())
        except ResultsFailed as error:
            self._trouble = error

    def _offsets(self, consumer: Consumer) -> dict[int, int]:
        """Where the group stands, partition by partition.

        A new group's starts are committed at once, those of all partitions: one that dies before
        its first record would begin behind it otherwise. So a partition that the group has no
        offset for was added since, and is read from its beginning.
        """
        stored = consumer.committed(self._partitions(), _ANSWER)
        offsets = {part.partition: part.offset for part in stored if part.offset >= 0}
        if offsets:
            return offsets
        starts = list(self._starts.values())
        consumer.commit(offsets=starts, asynchronous=False)
        return {part.partition: part.offset for part in starts}

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


def _connect(kafka: Mapping[str, Any], group: str | None, outages: OutageLog) -> Consumer:
    given = {name: value for name, value in kafka.items() if name not in _NOT_FOR_US}
    properties = {
        **given,
        "client.id": "oncepool-results",
        # Without a group of its own nothing is ever committed, but the library wants a name.
        "group.id": group or f"oncepool-results-{uuid.uuid4()}",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "log_level": _ERRORS_ONLY,
    }
    try:
        return Consumer(properties, logger=outages)
    except KafkaException as error:
        raise ConfigurationError(f"Kafka properties are not valid: {error.args[0]}") from error
