"""The client of a sandbox: the real one's calls, whose waiting is the sandbox's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from feedback.client.answering import Act, CallTimes, Pause, Steps, Watched, calling, waiting
from feedback.client.client import Client
from feedback.client.closing import Closing
from feedback.client.core import Type
from feedback.client.message import KafkaMessage, SubmitOptions
from feedback.client.own_calls import OwnCalls
from feedback.client.pending import Submission, Submissions
from feedback.client.send_clock import SendClock
from feedback.client.subscriptions import Subscriptions
from feedback.client.waiter import CautiousReader
from feedback.errors import StoreUnavailable
from feedback.status.status import Status, StatusWrite

if TYPE_CHECKING:
    from processing.testing.sandbox import Sandbox

TOPIC: Final = "sandbox"
_FAILED_READ: Final = 0.001


class SandboxClient(Client):
    """Sends to the sandbox and reads its statuses, all in the caller's thread.

    While it waits, requests run and the sandbox's clock goes on: to what is due next, and to the
    end of the wait where nothing is.
    """

    def __init__(
        self, sandbox: Sandbox, answer_timeouts: Mapping[str, float] | None = None
    ) -> None:
        self._sandbox = sandbox
        self._topic = TOPIC
        self._answer_timeouts = dict(answer_timeouts or {})
        self._queue_timeout = 0.0
        self._channel = None
        self._store = sandbox.statuses
        self._owns_store = False
        self._submissions = Submissions()
        self._clock = SendClock()
        self._calls = OwnCalls()
        self._subscriptions = Subscriptions({}, "", self._calls)
        self._reader = _Reader(self._store)
        self._waits = _Waits()  # type: ignore[assignment]
        self._sender = _Sender(sandbox)  # type: ignore[assignment]
        self._statuses = self._store  # type: ignore[assignment] # written at once: none is on its way
        self._deliveries = _Deliveries(sandbox, self._reported)  # type: ignore[assignment]
        self._closing = Closing(self._calls, self._deliveries, self._end)

    def _waiting(self, submission: Submission, watch: Watched, timeout: float | None) -> Steps:
        seconds = self._answer_within(submission) if timeout is None else timeout
        return waiting(submission, watch, self._check, seconds, self._sandbox.clock.time)

    def _calling(self, submission: Submission, watch: Watched, times: CallTimes) -> Steps:
        return calling(submission, watch, self._check, times, self._sandbox.clock.time)

    def _times(
        self, submission: Submission, timeout: float | None, resend_after: float | None
    ) -> CallTimes:
        times = super()._times(submission, timeout, resend_after)
        end = self._sandbox.clock.time() + times.seconds
        return CallTimes(times.seconds, times.resend_after, end)

    def _take(
        self, steps: Steps, watch: Any, sent: tuple[KafkaMessage, Submission] | None = None
    ) -> Status:
        status: Status | None = None
        try:
            self._look(watch)
            while True:
                step = steps.send(status)
                status = None
                if step is Act.LOOK:
                    try:
                        status = self._read(watch)
                    except StoreUnavailable as error:
                        steps.throw(error)  # which ends them
                elif isinstance(step, Pause):
                    self._sandbox.pass_time(step.seconds)
                    self._look(watch)
                elif sent is not None:
                    self._deliveries.send(*sent, 0.0)
        except StopIteration as end:
            answer: Status = end.value
            return answer

    def _drafted(
        self, type: Type, payload: Any, options: SubmitOptions
    ) -> tuple[KafkaMessage, Submission]:
        message, submission = super()._drafted(type, payload, options)
        if submission.unread is not None:
            # What stood before is older: a read that fails takes time, which stands still here.
            self._sandbox.clock.move(_FAILED_READ)
            submission.unread_before()
        return message, submission

    def _look(self, watch: Any) -> None:
        with suppress(StoreUnavailable):
            self._read(watch)

    def _read(self, watch: Any) -> Status | None:
        self._sandbox.run()
        found: Status | None = self._reader.read(watch.id)
        watch.status = found
        return found


class _Reader(CautiousReader):
    """Asks a store that was away again at once: in real time nothing passes."""

    def read_all(self, ids: Sequence[str]) -> list[Status | None]:
        return self._store.read(ids)


class _SandboxWatch:
    """A wait for one id."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.status: Status | None = None


class _Waits:
    """In place of the threads that wait."""

    def watch(self, id_: str) -> _SandboxWatch:
        return _SandboxWatch(id_)

    def unwatch(self, watch: _SandboxWatch) -> None:
        """It needs nothing."""

    def wake(self, id_: str) -> None:
        """Nobody waits in another thread."""

    def close(self) -> None:
        """There is nothing to close."""


class _Sender:
    """In place of the thread that writes statuses."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def put(self, writes: Sequence[StatusWrite]) -> None:
        self._sandbox.publish(writes)

    def close(self, timeout: float = 0.0) -> bool:
        return True


class _Deliveries:
    """In place of Kafka's producer: the sandbox has each message at once."""

    serving = False

    def __init__(self, sandbox: Sandbox, reported: Any) -> None:
        self._sandbox = sandbox
        self._reported = reported

    def send(self, message: KafkaMessage, submission: Submission, timeout: float) -> None:
        first, submission.delivered = not submission.delivered, True
        self._sandbox.take(message)
        if first:
            self._reported(submission)

    def raise_failure(self, submission: Submission) -> None:
        """None fails."""

    def raise_failures(self) -> None:
        """As above."""

    def failed(self) -> None:
        """As above."""

    def flush(self, timeout: float) -> None:
        """All has arrived."""

    def drain(self, timeout: float) -> int:
        """As above."""
        return 0

    def close(self, timeout: float) -> None:
        """There is nothing to close."""


def write_all(store: Any, writes: Sequence[StatusWrite]) -> None:
    """Writes statuses; those that come while the store is away are lost, as Redis is a hint."""
    try:
        store.write(writes)
    except StoreUnavailable:
        return
