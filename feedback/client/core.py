"""What every client is made of, whichever way it waits: its parts, and what it makes of requests.

Nothing here waits, but for what says so: it is called in the loop of an asyncio program as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from feedback.client.answering import CallTimes, Steps, Watched, calling, waiting
from feedback.client.closing import Closing
from feedback.client.delivery import Deliveries
from feedback.client.forks import watch
from feedback.client.kafka_log import OutageLog
from feedback.client.message import KafkaMessage, SubmitOptions, check_seconds, draft
from feedback.client.own_calls import OwnCalls
from feedback.client.own_statuses import OwnStatuses
from feedback.client.pending import Submission, Submissions, accepted
from feedback.client.producer import brokers, lasting
from feedback.client.send_clock import SendClock
from feedback.client.settings import answer_timeouts_of, given, store_of, topic_of
from feedback.client.subscriptions import Subscriptions
from feedback.client.waiter import CautiousReader, StatusWaiter
from feedback.contract.ids import uuid7
from feedback.errors import ClientClosed
from feedback.green_threads import refuse_green_threads
from feedback.guarded_producer import PlainProducer
from feedback.status.sender import StatusSender
from feedback.status.status import StatusWrite
from feedback.status.store import StatusStore
from feedback.tracing.switch import TRACING

DEFAULT_ANSWER_TIMEOUT: Final = 3600.0
LONGEST_RESEND: Final = 30.0
LONGEST_STATUS: Final = 10 * 366 * 86_400.0

# A request type's name, or a handler of an App: then results come back as its annotation says.
Type = str | Callable[..., Any]


def resend_after(timeout: float) -> float:
    """Seconds without news before a call sends again, unless it is told otherwise."""
    return min(timeout / 3, LONGEST_RESEND)


class ClientCore:
    """The parts of a client, and what its calls have in common."""

    def __init__(
        self,
        kafka: str | Sequence[str] | Mapping[str, Any] | PlainProducer,
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
        refuse_green_threads("a client")
        spans = TRACING.spans()
        kafka = brokers(kafka)
        self._calls = OwnCalls()
        if results_topic:
            topic_of("results_topic", results_topic)
        self._subscriptions = Subscriptions(kafka, results_topic, self._calls)
        self._topic = topic_of("topic", topic)
        self._answer_timeouts = answer_timeouts_of(answer_timeouts)
        self._queue_timeout = queue_timeout
        self._channel = f"{prefix}:hints:{uuid7()}" if hints else None
        outages = OutageLog()
        self._store = store_of(redis, given("prefix", prefix))
        prefix = getattr(self._store, "prefix", prefix)
        self._where = f"topic {topic!r} that writes its statuses under the Redis prefix {prefix!r}"
        producer = lasting(kafka, delivery_timeout, outages)
        self._owns_store = isinstance(redis, str)
        self._submissions = Submissions()
        self._clock = SendClock()
        self._reader = CautiousReader(self._store)
        self._waits = StatusWaiter(self._store, self._channel)
        with ExitStack() as unfinished:
            self._sender = StatusSender(self._store, max_queue=100_000)
            unfinished.callback(self._sender.close)  # where another thread can't be started
            self._statuses = OwnStatuses(self._store, self._submissions, self._sender)
            self._deliveries = Deliveries(producer, self._reported, outages, spans)
            unfinished.pop_all()
        self._closing = Closing(self._calls, self._deliveries, self._end)
        self._set_up()
        watch(self)

    def submission(self, id: str) -> Submission | None:
        """What was sent here last under this id; another object as soon as it is sent anew."""
        return self._submissions.get(id)

    def _set_up(self) -> None:
        """What a kind of client has besides."""

    def forked(self) -> None:
        """Called in a process that was forked: it is of no use there, and harms nobody."""
        self._closing.forked()
        self._deliveries.forked()
        self._subscriptions.forked()

    def _draft(
        self, type: Type, payload: Any, options: SubmitOptions
    ) -> tuple[KafkaMessage, Submission]:
        self._check_open()
        return draft(
            type,
            payload,
            topic=self._topic,
            reply_to=self._channel,
            clock=self._clock,
            earlier=self._submissions.get,
            **options,
        )

    def _waiting(self, submission: Submission, watch: Watched, timeout: float | None) -> Steps:
        seconds = self._answer_within(submission) if timeout is None else timeout
        return waiting(submission, watch, self._check, seconds, where=self._where)

    def _calling(self, submission: Submission, watch: Watched, times: CallTimes) -> Steps:
        return calling(submission, watch, self._check, times, where=self._where)

    def _times(
        self, submission: Submission, timeout: float | None, silence: float | None
    ) -> CallTimes:
        """Those of a call that begins now, and sends again after so much `silence`."""
        check_seconds("timeout", timeout)
        check_seconds("resend_after", silence)
        seconds = self._answer_within(submission) if timeout is None else timeout
        after = resend_after(seconds) if silence is None else silence
        if not (seconds > 0 and after > 0):
            raise ValueError("timeout and resend_after must be positive numbers of seconds")
        return CallTimes(seconds, after, time.monotonic() + seconds)

    def _remembered(self, id: str) -> Submission:
        """What is known here of an id that is waited for."""
        return self._submissions.get(id) or Submission(id, "", fingerprint=None)

    def _check(self, submission: Submission) -> None:
        self._check_open()
        self._deliveries.raise_failure(submission)

    def _check_open(self) -> None:
        if self._closing.reason:
            raise ClientClosed(self._closing.reason)

    def _reported(self, submission: Submission) -> None:
        """The broker has confirmed a request, or has not. Runs in the thread that polls."""
        if submission.failure is not None:
            self._waits.wake(submission.id)
            return
        ttl = int(min(LONGEST_STATUS, self._answer_within(submission))) + 1
        try:
            self._sender.put([StatusWrite.of(accepted(submission), ttl=ttl)])
        finally:
            submission.delivered = True  # who sees that finds the status

    def _answer_within(self, submission: Submission) -> float:
        """Seconds in which an answer is expected."""
        timeout = self._answer_timeouts.get(submission.type, DEFAULT_ANSWER_TIMEOUT)
        return timeout + submission.waits_for

    def _end(self, timeout: float) -> None:
        """Ends its parts, each of them whatever another raises; also a second time.

        Blocks, for some seconds more than `timeout`.
        """
        with ExitStack() as last_first:
            last_first.callback(self._end_sending, timeout)
            last_first.callback(self._subscriptions.close)
            last_first.callback(self._waits.close)

    def _end_sending(self, timeout: float) -> None:
        """Where a signal handler ends the first, what is sent meanwhile has its status written."""
        self._deliveries.close(timeout)
        with ExitStack() as last_first:
            if self._owns_store:
                last_first.callback(self._store.close)
            last_first.callback(self._sender.close)
