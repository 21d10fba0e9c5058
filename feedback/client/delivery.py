"""Sending to Kafka, and what became of each message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import confluent_kafka

from feedback.bell import Bell
from feedback.client.delivery_thread import DeliveryThread
from feedback.client.forks import never_free
from feedback.client.kafka_log import OutageLog
from feedback.client.message import KafkaMessage
from feedback.client.pending import Submission
from feedback.client.producer import LastingProducer
from feedback.client.unreported import Report, Unreported
from feedback.client.untold_failures import UntoldFailures
from feedback.errors import (
    ClientClosed,
    DeliveryFailed,
    DeliveryPending,
    OversizeCause,
    QueueFull,
    RequestTooLarge,
    SilenceCause,
)
from feedback.guarded_producer import GuardedProducer, PlainProducer
from feedback.message_size import BATCH
from feedback.produce_errors import (
    CLOCK_AHEAD,
    TOO_LARGE,
    TOO_OLD,
    TOPIC_MISSING,
    message_refusal,
    topic_refusal,
)

if TYPE_CHECKING:
    from feedback.tracing.spans import SendSpan, Spans

# Called in the thread that serves the producer, when the broker has confirmed a request for the
# first time, to mark it as delivered, or when it has failed before that.
Reported = Callable[[Submission], None]

_ROOM: Final = 0.1
_TAKEN_BACK: Final = (
    confluent_kafka.KafkaError._PURGE_QUEUE,  # noqa: SLF001 - its public name
    confluent_kafka.KafkaError._PURGE_INFLIGHT,  # noqa: SLF001 - as above
)
_GIVEN_UP: Final = confluent_kafka.KafkaError(
    confluent_kafka.KafkaError._PURGE_QUEUE,  # noqa: SLF001 - as above
    "not confirmed when the client was closed; the program's own producer may send it yet",
)
_TIMED_OUT: Final = confluent_kafka.KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - as above


class Deliveries:
    """Sends messages and knows which ones the broker did not confirm."""

    def __init__(
        self,
        producer: LastingProducer,
        reported: Reported,
        outages: OutageLog | None = None,
        spans: Spans | None = None,
    ) -> None:
        """`spans`: where tracing is on."""
        self._producer = producer
        self._spans = spans
        self._outages = outages or OutageLog()
        self._reported = reported
        self._lock = producer.lock
        self._closed = False  # guarded by _lock: nothing is produced after the last flush
        self._failures = UntoldFailures()
        self._waking = threading.RLock()
        self._wakes: list[Callable[[], None]] = []  # guarded by _waking: of who waits for room
        self._unreported = Unreported(producer.current)
        self._thread = DeliveryThread(producer, self._on_their_way, self._reap, self._give_up)

    def send(self, message: KafkaMessage, submission: Submission, timeout: float) -> None:
        """Queues one message. Raises QueueFull when there is no room within `timeout` seconds."""
        end = time.monotonic() + timeout
        while not self.offer(message, submission):
            if not self._wait_for_room(end):
                raise QueueFull(message.id, timeout, self.failure)

    @property
    def failure(self) -> str | None:
        """Why the producer takes nothing for now, where it has failed."""
        return self._producer.current.failure

    @property
    def serving(self) -> bool:
        """Whether a callback of the producer's asks."""
        return self._thread.current

    def offer(self, message: KafkaMessage, submission: Submission) -> bool:
        """Queues one message, or says that there is no room; waits for nothing.

        There is none either while another producer takes the place of one that has failed.
        """
        producer, failure = self._producer.current, submission.failure
        headers, span = message.headers, None
        if self._spans is not None:
            # One that there is no room for is never ended, and so never seen.
            span = self._spans.sending(
                message.topic, message.id, submission.type, message.key, headers
            )
            headers = span.headers
        report = self._report_of(message, submission, producer, span)
        try:
            with self._lock:
                if self._closed:
                    raise ClientClosed
                self._unreported.add(report, producer)
                try:
                    producer.produce(
                        message.topic,
                        key=message.key,
                        value=message.value,
                        headers=list(headers),
                        timestamp=message.timestamp,
                        on_delivery=report,
                    )
                except BaseException:
                    self._unreported.pop(report)
                    raise
        except BufferError:
            return False
        except confluent_kafka.KafkaException as error:
            if producer.hears(error.args[0]) and self._producer.lasts:
                return False
            if span is not None:
                span.reported(error.args[0])
            self._failures.refused(submission)
            raise _not_sent(message, error) from error
        self._failures.sent_again(submission, failure)
        return True

    @contextmanager
    def told_of_room(self, wake: Callable[[], None]) -> Iterator[None]:
        """Meanwhile `wake` is called, in another thread, when there may be room again."""
        with self._waking:
            self._wakes.append(wake)
        try:
            yield
        finally:
            with self._waking:
                self._wakes.remove(wake)

    def raise_failure(self, submission: Submission) -> None:
        """Raises DeliveryFailed where the broker did not confirm this one."""
        if submission.failure is not None and (failed := self._failures.tell(submission)):
            raise failed

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
        return self._thread.drain(timeout)

    def raise_failures(self) -> None:
        """Raises DeliveryFailed for those that nobody asked about before: once."""
        if (failed := self._failures.tell_all()) is not None:
            raise failed

    def failed(self) -> DeliveryFailed | None:
        """What raise_failures() would raise."""
        return self._failures.all()

    def close(self, timeout: float) -> None:
        """Waits as drain(); what is not confirmed in time is given up and counts as failed.

        All the same where a signal handler ends the wait. Raises RuntimeError within a callback,
        where nothing is closed.
        """
        if not self.serving:
            with self._lock:
                self._closed = True
        self._thread.close(timeout)

    def forked(self) -> None:
        """Called in a process that was forked."""
        never_free(self._producer.current.handle)

    def _report_of(
        self,
        message: KafkaMessage,
        submission: Submission,
        producer: GuardedProducer[PlainProducer],
        span: SendSpan | None,
    ) -> Report:
        """What is called with what became of one message: once, and a second time in vain."""
        first = [True]  # taken by who comes first, of any thread

        def report(error: confluent_kafka.KafkaError | None, sent: object) -> None:
            try:
                first.pop()
            except IndexError:
                return  # it was given up
            try:
                if span is not None:
                    span.reported(error, sent)
                taken = submission.first.delivered
                if error is not None and not taken and message_refusal(error) == CLOCK_AHEAD:
                    submission.sent = None  # sent again it is another message
                cause = None if error is None else _reported(message, error, producer, taken=taken)
                self._report(submission, cause)
            finally:
                self._unreported.pop(report)  # now a flush finds its failure

        return report

    def _on_their_way(self) -> int:
        return min(len(self._unreported), len(self._producer.current.handle))

    def _reap(self) -> None:
        """Ends what no report will come of. Runs in the thread that serves the producer."""
        with self._lock:  # nobody is about to produce what stands there
            lost = self._unreported.reap(self._producer.current)
        for report in lost:
            report(confluent_kafka.KafkaError(_TAKEN_BACK[0]), None)

    def _give_up(self) -> None:
        """Has what is on its way reported as failed. Runs in the thread that serves the producer.

        From a producer that was handed over nothing is taken back: what its owner sends with it
        would be as well.
        """
        if self._producer.lasts:
            self._producer.current.purge()
            return
        for report in self._unreported.all():
            report(_GIVEN_UP, None)

    def _report(self, submission: Submission, cause: str | None) -> None:
        if self._wakes:
            with self._waking:
                for wake in self._wakes:
                    wake()
        if cause is None:
            self._outages.over()
            self._producer.heard_from()
        if submission.delivered:
            return  # a resend: whatever became of it, the first one arrived
        if cause is None:
            self._failures.arrived(submission)
        else:
            self._failures.add(submission, cause)
        self._reported(submission)

    def _wait_for_room(self, end: float) -> bool:
        left = end - time.monotonic()
        if left <= 0:
            return False
        bell = Bell()
        with self.told_of_room(bell.ring):
            # Bounded, as a report may have come between the refusal and this.
            bell.wait(min(left, _ROOM))
        return True


def _not_sent(message: KafkaMessage, error: confluent_kafka.KafkaException) -> Exception:
    cause = error.args[0]
    if message_refusal(cause) == TOO_LARGE:
        return RequestTooLarge(
            f"request {message.id!r} is too large for Kafka ({len(message.value)} bytes): send a"
            " reference to its content, or raise message.max.bytes of this producer, and"
            f" max.message.bytes of topic {message.topic!r}"
        )
    return DeliveryFailed({message.id: _cause(message, cause)})


def _reported(
    message: KafkaMessage,
    error: confluent_kafka.KafkaError,
    producer: GuardedProducer[PlainProducer],
    *,
    taken: bool,
) -> str:
    """`taken`: brokers took its like before, with the same time."""
    if producer.hears(error) and error.code() in _TAKEN_BACK:
        return SilenceCause(f"the Kafka producer had failed before ({producer.failure})")
    if error.code() == _TIMED_OUT:
        return SilenceCause(_cause(message, error))
    if len(message.value) > BATCH and message_refusal(error) == TOO_LARGE:
        return OversizeCause(
            f"its {len(message.value)} bytes are more than topic {message.topic!r} takes"
            f" ({error.str()}): send a reference to its content, or raise max.message.bytes and"
            " segment.bytes of the topic"
        )
    return _cause(message, error, taken=taken)


def _cause(message: KafkaMessage, error: confluent_kafka.KafkaError, *, taken: bool = False) -> str:
    topic = message.topic
    if topic_refusal(error) == TOPIC_MISSING:
        return (
            f"topic {topic!r} does not exist. Create it (`oncepool topics create`), or correct "
            "ONCEPOOL_KAFKA_TOPIC or ONCEPOOL_KAFKA_TOPICS"
        )
    made = message.timestamp / 1000
    wrong = message_refusal(error, made)
    if wrong == CLOCK_AHEAD and taken:
        wrong = TOO_OLD  # a time that was not ahead then is not now
    if wrong == TOO_LARGE:
        return (
            f"{error.str()}: brokers say so of all messages that they get together. Lower"
            f" batch.size here, or raise max.message.bytes and segment.bytes of topic {topic!r}"
        )
    if wrong == CLOCK_AHEAD:
        age = time.time() - made
        old = f"; or message.timestamp.before.max.ms, as it is {age:.0f} s old" if age >= 1 else ""
        return (
            f"{error.str()}: set the clock of this machine right, or raise"
            f" message.timestamp.after.max.ms of topic {topic!r}{old}"
        )
    if wrong == TOO_OLD:
        return (
            f"{error.str()}: it was made longer ago than topic {topic!r} takes. Send it again, or"
            " raise message.timestamp.before.max.ms of the topic"
        )
    return error.str()
