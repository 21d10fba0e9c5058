"""Sending to Kafka: a producer, the thread that polls it, and what became of each message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, cast

import confluent_kafka

from feedback.client.forks import never_free
from feedback.client.kafka_log import OutageLog
from feedback.client.message import KafkaMessage
from feedback.client.pending import Submission
from feedback.errors import (
    ClientClosed,
    ConfigurationError,
    DeliveryFailed,
    DeliveryPending,
    QueueFull,
)

# Called, mostly in the polling thread, when the broker has confirmed a request for the first time
# or when it has failed before that.
Reported = Callable[[Submission], None]

_REMEMBERED: Final = 1_000  # failed ids; of more only the number is kept
_POLL: Final = 0.1
_TOPIC_UNKNOWN_FOR: Final = 3_000  # milliseconds
_NO_TOPIC: Final = (
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    confluent_kafka.KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
)
_WRONG_TIME: Final = confluent_kafka.KafkaError.INVALID_TIMESTAMP
_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")
_REFUSED: Final = {
    "delivery.report.only.error": "`accepted` is written from the reports of success",
    "transactional.id": "each request is sent on its own",
}


class KafkaProducer(Protocol):
    """What is used of confluent_kafka.Producer."""

    def produce(self, topic: str, **arguments: Any) -> None: ...

    def poll(self, timeout: float) -> int: ...

    def flush(self, timeout: float) -> int: ...

    def purge(self) -> None: ...


def connect(
    kafka: str | Mapping[str, Any], delivery_timeout: float, outages: OutageLog | None = None
) -> KafkaProducer:
    """A producer for bootstrap servers, or for librdkafka properties. Connects later."""
    given = {"bootstrap.servers": kafka} if isinstance(kafka, str) else dict(kafka)
    for name, reason in _REFUSED.items():
        if name in given:
            raise ConfigurationError(f"Kafka property {name} must not be set here: {reason}")
    if not any(given.get(name) for name in _SERVERS):
        raise ConfigurationError("kafka names no broker: give host:port, or bootstrap.servers")
    if not delivery_timeout > 0:
        raise ConfigurationError(f"delivery_timeout is {delivery_timeout}: it has to be above 0")
    properties = {
        "client.id": "oncepool-client",
        "enable.idempotence": True,
        "linger.ms": 1,
        # The partition that Java's clients choose for a key, so that order holds across languages.
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": int(delivery_timeout * 1000),
        # How long a topic may be unknown to the brokers before what is sent to it fails: one that
        # was just created is known within milliseconds.
        "topic.metadata.propagation.max.ms": _TOPIC_UNKNOWN_FOR,
        # How soon it is seen that the topic was made after all: the default is five minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
        **given,
    }
    try:
        return cast(
            "KafkaProducer", confluent_kafka.Producer(properties, logger=outages or OutageLog())
        )
    except confluent_kafka.KafkaException as error:
        raise ConfigurationError(f"Kafka properties are not valid: {error.args[0]}") from error


class Deliveries:
    """Sends messages and knows which ones the broker did not confirm."""

    def __init__(
        self, producer: KafkaProducer, reported: Reported, outages: OutageLog | None = None
    ) -> None:
        self._producer = producer
        self._outages = outages or OutageLog()
        self._reported = reported
        self._lock = threading.Lock()
        self._closed = False  # guarded by _lock: nothing is produced after the last flush
        self._failures: dict[str, str] = {}  # guarded by _lock: id: cause, until somebody is told
        self._more = 0  # guarded by _lock: failures beyond those
        self._room = threading.Condition()
        self._blocked = 0  # guarded by _room: who waits for room in the queue
        self._wakes: list[Callable[[], None]] = []  # guarded by _room: those that are told of it
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="deliveries", daemon=True)
        self._thread.start()

    def send(self, message: KafkaMessage, submission: Submission, timeout: float) -> None:
        """Queues one message. Raises QueueFull when there is no room within `timeout` seconds."""
        end = time.monotonic() + timeout
        while not self.offer(message, submission):
            if not self._wait_for_room(end):
                raise QueueFull(message.id, timeout)

    def offer(self, message: KafkaMessage, submission: Submission) -> bool:
        """Queues one message, or says that there is no room; waits for nothing."""

        def report(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is not None and error.code() == _WRONG_TIME:
                submission.sent = None  # sent again it is not this message: none has its time yet
            self._report(submission, None if error is None else _cause(message.topic, error))

        try:
            with self._lock:
                if self._closed:
                    raise ClientClosed
                self._producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp=message.timestamp,
                    on_delivery=report,
                )
        except BufferError:
            return False
        except confluent_kafka.KafkaException as error:
            raise _not_sent(message, error) from error
        return True

    @contextmanager
    def told_of_room(self, wake: Callable[[], None]) -> Iterator[None]:
        """Meanwhile `wake` is called, in whichever thread polls, when there may be room again."""
        with self._room:
            self._blocked += 1
            self._wakes.append(wake)
        try:
            yield
        finally:
            with self._room:
                self._blocked -= 1
                self._wakes.remove(wake)

    def raise_failure(self, submission: Submission) -> None:
        """Raises DeliveryFailed where the broker did not confirm this one: once."""
        if submission.failure is None:
            return
        cause, submission.failure = submission.failure, None
        with self._lock:
            if self._failures.pop(submission.id, None) is None and not submission.told:
                self._more = max(0, self._more - 1)
            submission.told = True
        raise DeliveryFailed({submission.id: cause})

    def flush(self, timeout: float) -> None:
        """Waits until every message is confirmed or failed.

        Raises DeliveryPending when time runs out, DeliveryFailed for those that nobody asked
        about before.
        """
        pending = self.drain(timeout)
        if pending:
            raise DeliveryPending(pending, timeout)
        self.raise_failures()

    def drain(self, timeout: float) -> int:
        """Waits until nothing is on its way. Returns how many messages still are in the end."""
        return self._producer.flush(timeout)

    def raise_failures(self) -> None:
        """Raises DeliveryFailed for those that nobody asked about before: once."""
        with self._lock:
            failures, self._failures = self._failures, {}
            more, self._more = self._more, 0
        if failures:
            raise DeliveryFailed(failures, more)

    def close(self, timeout: float) -> None:
        """As flush(); what is not confirmed in time is given up and counts as failed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._producer.flush(timeout):
            self._producer.purge()
            self._producer.flush(1.0)  # serves the reports of what was purged
        self._stop.set()
        self._thread.join()
        self.raise_failures()

    def forked(self) -> None:
        """Called in a process that was forked."""
        never_free(self._producer)

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL)

    def _report(self, submission: Submission, cause: str | None) -> None:
        """Runs in whichever thread polls or flushes."""
        if self._blocked:
            with self._room:
                self._room.notify_all()
                for wake in self._wakes:
                    wake()
        if cause is None:
            self._outages.over()
        if submission.delivered:
            return  # a resend: whatever became of it, the first one arrived
        if cause is None:
            submission.delivered = True
            submission.failure = None
            with self._lock:
                self._failures.pop(submission.id, None)
        else:
            submission.failure = cause
            self._remember(submission, cause)
        self._reported(submission)

    def _remember(self, submission: Submission, cause: str) -> None:
        with self._lock:
            if submission.told:
                return  # of an earlier copy
            if submission.id in self._failures or len(self._failures) < _REMEMBERED:
                self._failures[submission.id] = cause
            else:
                self._more += 1

    def _wait_for_room(self, end: float) -> bool:
        left = end - time.monotonic()
        if left <= 0:
            return False
        with self._room:
            self._blocked += 1
            # Bounded, as a report may have come between the refusal and this.
            self._room.wait(min(left, _POLL))
            self._blocked -= 1
        return True


def _not_sent(message: KafkaMessage, error: confluent_kafka.KafkaException) -> Exception:
    cause = error.args[0]
    if cause.code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE:
        return ValueError(
            f"request {message.id!r} is too large for Kafka ({len(message.value)} bytes): "
            "send a reference to its content, or raise message.max.bytes here and on the topic"
        )
    return DeliveryFailed({message.id: _cause(message.topic, cause)})


def _cause(topic: str, error: confluent_kafka.KafkaError) -> str:
    if error.code() in _NO_TOPIC:
        return (
            f"topic {topic!r} does not exist. Create it (`oncepool topics create`), or correct "
            "ONCEPOOL_KAFKA_TOPIC or ONCEPOOL_KAFKA_TOPICS"
        )
    if error.code() == _WRONG_TIME:
        return (
            f"{error.str()}: set the clock of this machine right, or raise"
            f" message.timestamp.after.max.ms of topic {topic!r}"
        )
    return error.str()
