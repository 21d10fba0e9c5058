"""The producer's side for programs of asyncio: the client's calls, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Concatenate, Final, Self, TypeVar, Unpack, overload

from feedback.client.answering import Act, Steps
from feedback.client.async_results import AsyncResults
from feedback.client.core import ClientCore, Type
from feedback.client.event_loop import LoopBell, LoopWatch, in_thread
from feedback.client.message import CallOptions, KafkaMessage, SubmitOptions, check_ids, check_wait
from feedback.client.pending import StatusBefore, Submission, accepted
from feedback.client.results import Results
from feedback.client.settings import settings_from
from feedback.client.shared_reads import SharedReads
from feedback.errors import DeliveryFailed, DeliveryPending, QueueFull, StoreUnavailable
from feedback.status.status import Status, StatusFields

_SLICE: Final = 0.1  # how long a thread of a flush() goes on that was cancelled
_ROOM: Final = 0.1  # a message makes room only after it has been reported

ResultT = TypeVar("ResultT")


class AsyncClient(ClientCore):
    """Client for the tasks of one event loop: the same arguments, calls, errors, and guarantees.

    Nothing blocks the loop, and whoever is cancelled leaves nothing behind. It may be made before
    the loop runs. All waits share one thread that reads statuses and one that receives hints.
    """

    # The loop's: made where it is first used in one.
    _turn: asyncio.Lock  # held by the task that is told of room in the send queue
    _queued: int  # tasks that wait for it, or have it
    _ready: asyncio.Future[None] | None  # done when hints arrive

    def _set_up(self) -> None:
        self._reads = SharedReads(self._statuses.read)
        self._looks = SharedReads(self._reader.read_all)  # after a failure it fails at once
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bells: dict[str, list[LoopBell]] = {}  # of tasks that wait for the broker, by id

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> Self:
        """As Client.from_env()."""
        return cls(**(settings_from(environ, given=options) | options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except DeliveryFailed as failed:
            self._closing.tell(failed, error)

    async def submit(self, type: Type, payload: Any, **options: Unpack[SubmitOptions]) -> str:
        """As Client.submit(). Cancelled before it returns, the request may have been sent or not.

        Raises ValueError for what no consumer would take, QueueFull.
        """
        message, submission = await self._drafted(type, payload, options)
        await self._send_first(message, submission, self._queue_timeout)
        return message.id

    async def submit_new(self, type: Type, payload: Any, **options: Unpack[SubmitOptions]) -> str:
        """As submit(), for who has just seen that no status stands under the id that he gives.

        It is not read once more then.
        """
        self._enter()
        message, submission = self._draft(type, payload, options)
        await self._send_first(message, submission, self._queue_timeout)
        return message.id

    async def delivered(self, id: str, timeout: float = 30.0) -> StatusFields:
        """Returns when the broker has confirmed a request that was submitted here: `accepted`.

        Raises DeliveryFailed where it has not, DeliveryPending where it says nothing in time, and
        ValueError for an id that this client did not submit, or has long forgotten.
        """
        self._enter()
        submission = self._submissions.get(id)
        if submission is None:
            raise ValueError(f"request {id!r} was not submitted by this client")
        end = time.monotonic() + timeout
        bells, bell = self._bells.setdefault(id, []), LoopBell()
        bells.append(bell)
        try:
            while not submission.delivered:
                self._check(submission)
                left = end - time.monotonic()
                if left <= 0:
                    raise DeliveryPending(1, timeout)
                await bell.wait(left)
        finally:
            bells.remove(bell)
            if not bells:
                self._bells.pop(id, None)
        return accepted(submission)

    async def status(self, id: str) -> Status | None:
        """The status that stands, None where there is none. Raises StoreUnavailable."""
        return (await self.statuses([id]))[0]

    async def statuses(self, ids: Sequence[str]) -> list[Status | None]:
        """One status an id, in their order; None where there is none. Raises StoreUnavailable."""
        self._enter()
        check_ids(ids)
        return await self._reads.read(ids)

    async def wait(self, id: str, timeout: float | None = None) -> Status:
        """As Client.wait(). Raises WaitTimeout, Conflict, DeliveryFailed."""
        self._enter()
        check_wait(id, timeout)
        submission = self._remembered(id)
        watch = self._waits.begin(LoopWatch(id))
        try:
            return await self._take(self._waiting(submission, watch, timeout), watch)
        finally:
            self._waits.unwatch(watch)

    @overload
    async def call(
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
    async def call(
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
    async def call(
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
    async def call(
        self,
        type: str,
        payload: Any,
        *,
        timeout: float | None = ...,
        resend_after: float | None = ...,
        run_timeout: float | None = ...,
        **options: Unpack[CallOptions],
    ) -> Status: ...

    async def call(
        self,
        type: Type,
        payload: Any,
        *,
        timeout: float | None = None,
        resend_after: float | None = None,
        run_timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Status[Any]:
        """As Client.call(). Cancelled, it sends no more; what it has sent may run."""
        message, submission = await self._drafted(
            type, payload, {**options, "timeout": run_timeout}
        )
        times = self._times(submission, timeout, resend_after)
        watch = self._waits.begin(LoopWatch(message.id))
        try:
            await self._send_first(message, submission, min(times.seconds, self._queue_timeout))
            steps = self._calling(submission, watch, times)
            try:
                return await self._take(steps, watch, (message, submission))
            finally:
                self._submissions.keep(submission)  # who has waited in vain asks `delivered`
        finally:
            self._waits.unwatch(watch)

    async def results(
        self, group: str | None = None, from_beginning: bool = False, topic: str | None = None
    ) -> AsyncResults:
        """As Client.results(), for `async for`; what is written after this returns will come.

        Raises ResultsFailed, ConfigurationError.
        """
        self._enter()
        opening = in_thread(self._subscriptions.open, group, topic, from_beginning=from_beginning)
        try:
            return AsyncResults(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    async def flush(self, timeout: float = 30.0) -> None:
        """As Client.flush(). Raises DeliveryPending, DeliveryFailed."""
        self._enter()
        end = time.monotonic() + timeout
        left = timeout
        while pending := await in_thread(self._deliveries.drain, max(0.0, min(left, _SLICE))):
            left = end - time.monotonic()
            if left <= 0:
                raise DeliveryPending(pending, timeout)
        self._deliveries.raise_failures()

    async def close(self, timeout: float = 30.0) -> None:
        """As Client.close(). Cancelled, it is closed all the same, without being waited for.

        What failed is logged then. Another close() waits for that, and raises it; the end of the
        program waits as well.
        """
        closing = in_thread(self._closing.close, timeout)
        self._closing.refuse()
        try:
            closed = await closing
        except (asyncio.CancelledError, GeneratorExit):
            self._closing.go_on(timeout)
            raise
        if closed:
            self._deliveries.raise_failures()

    def _reported(self, submission: Submission) -> None:
        super()._reported(submission)
        for bell in tuple(self._bells.get(submission.id, ())):
            bell.ring()

    def _end(self, timeout: float) -> None:
        with ExitStack() as last_first:
            last_first.callback(super()._end, timeout)
            last_first.callback(self._looks.close)
            last_first.callback(self._reads.close)

    def _enter(self) -> None:
        """Each call begins here. Raises where it is closed, or another loop's."""
        self._check_open()
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("this client is used in another event loop: make one in each")
        self._loop, self._turn, self._queued, self._ready = loop, asyncio.Lock(), 0, None

    async def _drafted(
        self, type: Type, payload: Any, options: SubmitOptions
    ) -> tuple[KafkaMessage, Submission]:
        self._enter()
        message, submission = self._draft(type, payload, options)
        if options.get("request_id") is not None:  # nothing can stand under an id just made
            try:
                submission.before = StatusBefore.of(await self._look(message.id))
            except StoreUnavailable:
                submission.unread_before()
        return message, submission

    async def _send_first(
        self, message: KafkaMessage, submission: Submission, seconds: float
    ) -> None:
        if self._channel is not None and not self._waits.listening:
            if self._ready is None or self._ready.done():  # with an error
                self._ready = in_thread(self._waits.listen)
            await asyncio.shield(self._ready)  # before it is sent, so that no hint is missed
        # The lock is free for a moment between two that wait for it, and nobody's then.
        if self._queued or not self._offer(message, submission):
            await self._send_in_turn(message, submission, seconds)

    async def _send_in_turn(
        self, message: KafkaMessage, submission: Submission, seconds: float
    ) -> None:
        """One task at a time is told of room: thousands would wake for each message delivered."""
        self._queued += 1
        try:
            async with asyncio.timeout(seconds), self._turn:
                bell = LoopBell()
                with self._deliveries.told_of_room(bell.ring):
                    while not self._offer(message, submission):
                        await bell.wait(_ROOM)
        except TimeoutError:
            raise QueueFull(message.id, seconds, self._deliveries.failure) from None
        finally:
            self._queued -= 1

    def _offer(self, message: KafkaMessage, submission: Submission) -> bool:
        """Sends and remembers in one go: what was cancelled before is not remembered."""
        sent = self._deliveries.offer(message, submission)
        if sent:
            self._submissions.add(submission)
        return sent

    async def _look(self, id: str) -> Status | None:
        return (await self._looks.read([id]))[0]

    async def _take(
        self, steps: Steps, watch: LoopWatch, sent: tuple[KafkaMessage, Submission] | None = None
    ) -> Status:
        """Takes the steps of a wait for an answer; a call has `sent` something, to send again."""
        status: Status | None = None
        try:
            while True:
                step = steps.send(status)
                status = None
                if step is Act.LOOK:
                    try:
                        status = await self._look(watch.id)
                    except StoreUnavailable as error:
                        steps.throw(error)  # which ends them
                elif step is not Act.SEND:
                    await watch.wait(step.seconds)
                elif sent is not None:
                    self._deliveries.offer(*sent)
        except StopIteration as end:
            answer: Status = end.value
            return answer


def _close_unwanted(opening: asyncio.Future[Results]) -> None:
    """Nobody waits for this reader any more."""
    if not opening.cancelled() and opening.exception() is None:
        in_thread(opening.result().close)
