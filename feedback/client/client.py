"""The producer's side: submit requests, wait for their answers, send again what got none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Self, TypeVar, Unpack, overload

from feedback.client.answering import Act, Steps
from feedback.client.core import ClientCore, Type
from feedback.client.message import CallOptions, KafkaMessage, SubmitOptions, check_ids, check_wait
from feedback.client.pending import StatusBefore, Submission
from feedback.client.results import Results
from feedback.client.settings import settings_from
from feedback.client.waiter import ThreadWatch
from feedback.errors import DeliveryFailed, QueueFull, StoreUnavailable
from feedback.status.status import Status

ResultT = TypeVar("ResultT")


class Client(ClientCore):
    """Submits requests and waits for their answers. Safe to use from many threads.

    `kafka` names bootstrap servers ("host:port,host:port", or a list of them), or is librdkafka's
    properties; `redis` is a URL, or a status store. `answer_timeouts` (type: seconds, 3600 for
    others) says how long an answer may take: that long `accepted` stands, and a wait without a
    time-out of its own goes on. Nothing blocks without a bound: a full send queue for
    `queue_timeout` seconds; a message that the broker does not confirm fails after
    `delivery_timeout` seconds. Without `hints`, messages carry one header less and waits rely on
    reading statuses alone. `results_topic` is where results() reads.
    """

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> Self:
        """A client as the environment says; `options` are the class's and count more.

        Reads ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS, ONCEPOOL_KAFKA_TOPIC (or the first of
        ONCEPOOL_KAFKA_TOPICS), ONCEPOOL_REDIS_URL and, where they are set,
        ONCEPOOL_KAFKA_PROPERTIES (a JSON object of librdkafka properties), ONCEPOOL_REDIS_PREFIX
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
            self._closing.tell(failed, error)

    def submit(self, type: Type, payload: Any, **options: Unpack[SubmitOptions]) -> str:
        """Sends a request and returns its id; does not wait for the broker.

        Raises ValueError for what no consumer would take, QueueFull. That the broker did not
        confirm it is raised by waits for this id, or else by flush() or close().
        """
        with self._calls.lock:
            message, submission = self._drafted(type, payload, options)
            self._send_first(message, submission)
            return message.id

    def status(self, id: str) -> Status | None:
        """The status that stands, None where there is none. Raises StoreUnavailable."""
        return self.statuses([id])[0]

    def statuses(self, ids: Sequence[str]) -> list[Status | None]:
        """One status an id, in their order; None where there is none. Raises StoreUnavailable."""
        self._check_open()
        check_ids(ids)
        with self._calls.lock:
            return self._statuses.read(ids)

    def wait(self, id: str, timeout: float | None = None) -> Status:
        """The status, as soon as it is settled.

        Raises WaitTimeout after `timeout` seconds (else the type's answer time-out), Conflict
        where the id is another payload's, DeliveryFailed where the broker did not confirm it. An
        id that this client did not submit may be waited for as well.
        """
        self._check_open()
        check_wait(id, timeout)
        with self._calls.lock:
            submission = self._remembered(id)
            watch = self._waits.watch(id)
            try:
                return self._take(self._waiting(submission, watch, timeout), watch)
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
        type: Callable[..., Coroutine[Any, Any, ResultT]],
        payload: Any,
        *,
        timeout: float | None = ...,
        resend_after: float | None = ...,
        run_timeout: float | None = ...,
        **options: Unpack[CallOptions],
    ) -> Status[ResultT]: ...  # an `async def` handler

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
        after `failed` with `shutdown` or `database_unavailable`, and where no broker has said
        anything of it in time. Any other settled status is returned. `timeout` is for the whole
        call; `run_timeout` is what submit() calls `timeout`. Of a handler `result` has the type
        that it returns, where the request is done. Raises as wait() and submit() do.
        """
        with self._calls.lock:
            message, submission = self._drafted(type, payload, {**options, "timeout": run_timeout})
            times = self._times(submission, timeout, resend_after)
            watch = self._waits.watch(message.id)
            try:
                self._send_first(message, submission, times.seconds)
                steps = self._calling(submission, watch, times)
                return self._take(steps, watch, (message, submission))
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
        with self._calls.lock:
            return self._subscriptions.open(group, topic, from_beginning=from_beginning)

    def flush(self, timeout: float = 30.0) -> None:
        """Waits until the broker has confirmed everything submitted.

        Raises DeliveryPending when that takes longer, DeliveryFailed for requests that nobody
        has waited for.
        """
        self._check_open()
        with self._calls.lock:
            self._deliveries.flush(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flushes, ends waits in other threads with ClientClosed, and stops all threads.

        What the broker has not confirmed within `timeout` seconds is given up. Raises
        DeliveryFailed as flush() does, when all is closed.

        In a signal handler that interrupts a call of this client, and in a callback of the Kafka
        client, it returns at once: a thread does all this and logs what failed. The next close()
        and the end of the program wait for it, and that close(), or the flush() that was
        interrupted, raises DeliveryFailed. So does another thread's close() wait.
        """
        if self._closing.close(timeout):
            with self._calls.lock:
                self._deliveries.raise_failures()

    def _drafted(
        self, type: Type, payload: Any, options: SubmitOptions
    ) -> tuple[KafkaMessage, Submission]:
        message, submission = self._draft(type, payload, options)
        if options.get("request_id") is not None:  # nothing can stand under an id just made
            try:
                submission.before = StatusBefore.of(self._reader.read(message.id))
            except StoreUnavailable:
                submission.unread_before()
        return message, submission

    def _send_first(
        self, message: KafkaMessage, submission: Submission, timeout: float | None = None
    ) -> None:
        if self._channel is not None:
            self._waits.listen()  # before it is sent, so that no hint is missed
        self._submissions.add(submission)
        bound = self._queue_timeout if timeout is None else min(timeout, self._queue_timeout)
        self._deliveries.send(message, submission, bound)

    def _take(
        self, steps: Steps, watch: ThreadWatch, sent: tuple[KafkaMessage, Submission] | None = None
    ) -> Status:
        """Takes the steps of a wait for an answer; a call has `sent` something, to send again."""
        status: Status | None = None
        try:
            while True:
                step = steps.send(status)
                status = None
                if step is Act.LOOK:
                    try:
                        status = self._reader.read(watch.id)
                    except StoreUnavailable as error:
                        steps.throw(error)  # which ends them
                elif step is not Act.SEND:
                    watch.wait(step.seconds)
                elif sent is not None:
                    with suppress(QueueFull):
                        self._deliveries.send(*sent, 0.0)
        except StopIteration as end:
            answer: Status = end.value
            return answer
