"""The producer's side: submit requests, wait for their answers, send again what got none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Concatenate, Final, Self, TypeVar, Unpack, overload

from feedback.client.call import Call, ResendTimer
from feedback.client.delivery import Deliveries, KafkaProducer, connect
from feedback.client.forks import FORKED, watch
from feedback.client.kafka_log import OutageLog
from feedback.client.message import CallOptions, KafkaMessage, SubmitOptions, check_wait, draft
from feedback.client.pending import Submission, Submissions
from feedback.client.results import Results, Subscriptions
from feedback.client.send_clock import SendClock
from feedback.client.settings import given, settings_from, store_of
from feedback.client.waiter import CautiousReader, StatusWaiter, Watch
from feedback.contract.ids import uuid7
from feedback.contract.states import OK, State
from feedback.errors import CLOSED, ClientClosed, DeliveryFailed, QueueFull, WaitTimeout
from feedback.status.sender import StatusSender
from feedback.status.status import Status, StatusFields, StatusWrite
from feedback.status.store import StatusStore

DEFAULT_ANSWER_TIMEOUT: Final = 3600.0
LONGEST_RESEND: Final = 30.0
LONGEST_STATUS: Final = 10 * 366 * 86_400.0

ResultT = TypeVar("ResultT")

# A request type's name, or a handler of an App: then results come back as its annotation says.
Type = str | Callable[..., Any]


class Client:
    """Submits requests and waits for their answers. Safe to use from many threads.

    `kafka` is a list of bootstrap servers, or librdkafka properties; `redis` a URL, or a status
    store. `answer_timeouts` (type: seconds, 3600 for others) says how long an answer may take:
    that long `accepted` stands, and a wait without a time-out of its own goes on. Nothing blocks
    without a bound: a full send queue for `queue_timeout` seconds; a message that the broker does
    not confirm fails after `delivery_timeout` seconds. Without `hints`, messages carry one header
    less and waits rely on reading statuses alone. `results_topic` is where results() reads.
    """

    def __init__(
        self,
        kafka: str | Mapping[str, Any] | KafkaProducer,
        redis: str | StatusStore,
        topic: str,
        *,
        prefix: str = "oncepool",
        answer_timeouts: Mapping[str, float] | None = None,
        delivery_timeout: float = 30.0,
        queue_timeout: float = 5.0,
        hints: bool = True,
        results_topic: str = "",
    ) -> None:
        self._topic = given("topic", topic)
        self._answer_timeouts = dict(answer_timeouts or {})
        self._queue_timeout = queue_timeout
        self._channel = f"{prefix}:hints:{uuid7()}" if hints else None
        outages = OutageLog()
        self._store = store_of(redis, given("prefix", prefix))
        if isinstance(kafka, str | Mapping):
            producer = connect(kafka, delivery_timeout, outages)
        else:
            producer = kafka
        self._owns_store = isinstance(redis, str)
        self._closed = ""  # why it is
        self._submissions = Submissions()
        self._clock = SendClock()
        self._reader = CautiousReader(self._store)
        self._waits = StatusWaiter(self._store, self._channel)
        self._sender = StatusSender(self._store, max_queue=100_000)
        self._deliveries = Deliveries(producer, self._reported, outages)
        self._subscriptions = Subscriptions(kafka, results_topic)
        watch(self)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> Self:
        """A client as the environment says; `options` are the class's and count more.

        Reads ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS, ONCEPOOL_KAFKA_TOPIC (or the first of
        ONCEPOOL_KAFKA_TOPICS), ONCEPOOL_REDIS_URL and, where they are set, ONCEPOOL_REDIS_PREFIX
        and ONCEPOOL_KAFKA_RESULTS_TOPIC.
        Raises ConfigurationError, which names what is missing.
        """
        return cls(**(settings_from(environ, given=options) | options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DeliveryFailed as failed:
            if error is None:
                raise
            error.add_note(str(failed))  # what ended the block says more

    def submit(self, type: Type, payload: Any, **options: Unpack[SubmitOptions]) -> str:
        """Sends a request and returns its id; does not wait for the broker.

        Raises ValueError for what no consumer would take, QueueFull. That the broker did not
        confirm it is raised by the next wait() for this id, or else by flush() or close().
        """
        message, submission = self._draft(type, payload, options)
        self._send_first(message, submission)
        return message.id

    def status(self, id: str) -> Status | None:
        """The status that stands, None where there is none. Raises StoreUnavailable."""
        return self.statuses([id])[0]

    def statuses(self, ids: Sequence[str]) -> list[Status | None]:
        """One status an id, in their order; None where there is none. Raises StoreUnavailable."""
        self._check_open()
        for id_ in ids:
            check_wait(id_)
        return self._store.read(ids)

    def wait(self, id: str, timeout: float | None = None) -> Status:
        """The status, as soon as it is settled.

        Raises WaitTimeout after `timeout` seconds (else the type's answer time-out), Conflict
        where the id is another payload's, DeliveryFailed where the broker did not confirm it. An
        id that this client did not submit may be waited for as well.
        """
        self._check_open()
        check_wait(id, timeout)
        submission = self._submissions.get(id) or Submission(id, "", fingerprint=None)
        seconds = self._answer_within(submission) if timeout is None else timeout
        end = time.monotonic() + seconds
        watch = self._waits.watch(id)
        try:
            while True:
                answer = submission.answer(watch.status)
                if answer is not None:
                    return answer
                self._check_open()
                self._deliveries.raise_failure(submission)
                left = end - time.monotonic()
                if left <= 0:
                    break
                watch.wait(left)
            status = self._last_status(watch)
            answer = submission.answer(status)
            if answer is None:
                raise WaitTimeout(id, seconds, status)
            return answer
        finally:
            self._waits.unwatch(watch)

    @overload
    def call(
        self,
        type: Callable[Concatenate[list[Any], ...], Any],
        payload: Any,
        *,
        timeout: float | None = ...,
        resend_after: float | None = ...,
        run_timeout: float | None = ...,
        **options: Unpack[CallOptions],
    ) -> Status: ...  # a batch handler returns a list, of which a request has one element

    @overload
    def call(
        self,
        type: Callable[..., ResultT],
        payload: Any,
        *,
        timeout: float | None = ...,
        resend_after: float | None = ...,
        run_timeout: float | None = ...,
        **options: Unpack[CallOptions],
    ) -> Status[ResultT]: ...

    @overload
    def call(
        self,
        type: str,
        payload: Any,
        *,
        timeout: float | None = ...,
        resend_after: float | None = ...,
        run_timeout: float | None = ...,
        **options: Unpack[CallOptions],
    ) -> Status: ...

    def call(
        self,
        type: Type,
        payload: Any,
        *,
        timeout: float | None = None,
        resend_after: float | None = None,
        run_timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Status[Any]:
        """Submits, waits, and sends the same request again until an answer comes.

        Again after `resend_after` seconds without news (else a third of `timeout`, at most 30),
        and after `failed` with `shutdown` or `database_unavailable`. Any other settled status is
        returned. `timeout` is for the whole call; `run_timeout` is what submit() calls `timeout`.
        Of a handler `result` has the type that it returns, where the request is done. Raises as
        wait() and submit() do.
        """
        message, submission = self._draft(type, payload, {**options, "timeout": run_timeout})
        seconds = self._answer_within(submission) if timeout is None else timeout
        after = min(seconds / 3, LONGEST_RESEND) if resend_after is None else resend_after
        if not (seconds > 0 and after > 0):
            raise ValueError("timeout and resend_after must be positive numbers of seconds")
        end = time.monotonic() + seconds
        watch = self._waits.watch(message.id)
        try:
            self._send_first(message, submission, seconds)
            call = Call(submission, ResendTimer(time.monotonic(), after))
            while (now := time.monotonic()) < end:
                answer = call.answer(watch.status, now)
                if answer is not None:
                    return answer
                self._check_open()
                self._deliveries.raise_failure(submission)
                if now >= call.due:
                    # Where the queue is full the first copy may still be on its way in it, and its
                    # answer must not be missed: the next turn to send again comes.
                    with suppress(QueueFull):
                        self._send(message, submission, 0.0)
                    call.sent(time.monotonic())
                watch.wait(max(0.0, min(end, call.due) - time.monotonic()))
            status = self._last_status(watch)
            answer = call.answer(status, now)
            if answer is None:
                raise WaitTimeout(message.id, seconds, status)
            return answer
        finally:
            self._waits.unwatch(watch)

    def results(
        self, group: str | None = None, from_beginning: bool = False, topic: str | None = None
    ) -> Results:
        """Result records of all requests, from this call on or `from_beginning`, without an end.

        Records may come twice. Readers with the same `group` share them and go on where the
        group stood; without one every reader gets all. Ended by its close() or the client's.
        Raises ResultsFailed where the topic can't be read, ConfigurationError without one.
        """
        self._check_open()
        return self._subscriptions.open(group, topic, from_beginning=from_beginning)

    def flush(self, timeout: float = 30.0) -> None:
        """Waits until the broker has confirmed everything submitted.

        Raises DeliveryPending when that takes longer, DeliveryFailed for requests that nobody
        has waited for.
        """
        self._check_open()
        self._deliveries.flush(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flushes, ends waits in other threads with ClientClosed, and stops all threads.

        What the broker has not confirmed within `timeout` seconds is given up. Raises
        DeliveryFailed as flush() does, when all is closed.
        """
        if self._closed:
            return
        self._closed = CLOSED
        self._waits.close()
        self._subscriptions.close()
        try:
            self._deliveries.close(timeout)
        finally:
            self._sender.close()
            if self._owns_store:
                self._store.close()

    def forked(self) -> None:
        """Called in a process that was forked: it is of no use there, and harms nobody."""
        self._closed = FORKED
        self._deliveries.forked()
        self._subscriptions.forked()

    def _draft(
        self, type: Type, payload: Any, options: SubmitOptions
    ) -> tuple[KafkaMessage, Submission]:
        self._check_open()
        message, submission = draft(
            type,
            payload,
            topic=self._topic,
            reply_to=self._channel,
            clock=self._clock,
            earlier=self._submissions.get,
            **options,
        )
        if options.get("request_id") is not None:  # nothing can stand under an id just made
            submission.before = self._reader.read(message.id)
        return message, submission

    def _send_first(
        self, message: KafkaMessage, submission: Submission, timeout: float | None = None
    ) -> None:
        if self._channel is not None:
            self._waits.listen()  # before it is sent, so that no hint is missed
        self._submissions.add(submission)
        self._send(message, submission, timeout)

    def _send(self, message: KafkaMessage, submission: Submission, timeout: float | None) -> None:
        bound = self._queue_timeout if timeout is None else min(timeout, self._queue_timeout)
        self._deliveries.send(message, submission, bound)

    def _last_status(self, watch: Watch) -> Status | None:
        """At the end of a wait: what stands now may be newer than the last sweep."""
        return self._reader.read(watch.id) or watch.status

    def _reported(self, submission: Submission) -> None:
        """The broker has confirmed a request, or has not."""
        if submission.failure is not None:
            self._waits.wake(submission.id)
            return
        fingerprint = submission.fingerprint
        accepted = StatusFields(
            submission.id, submission.type, State.ACCEPTED, 0, OK, 0, at=datetime.now(UTC),
            fingerprint=None if fingerprint is None else bytes.fromhex(fingerprint),
        )  # fmt: skip
        ttl = int(min(LONGEST_STATUS, self._answer_within(submission))) + 1
        self._sender.put([StatusWrite.of(accepted, ttl=ttl)])

    def _answer_within(self, submission: Submission) -> float:
        """Seconds in which an answer is expected."""
        timeout = self._answer_timeouts.get(submission.type, DEFAULT_ANSWER_TIMEOUT)
        return timeout + submission.waits_for

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(self._closed)
