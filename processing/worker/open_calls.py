"""Calls of `async def` handlers that are open at once, in the event loop's thread.

What comes before a call and after it, on the database, is done by the worker's main thread, for one
request after the other. Each call has its own deadline; what ends it early is told to its coroutine
as a cancellation, and once more after a second. A call that does not end then, or has a thread that
does not, or keeps the loop to itself, is the main process's to deal with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from datetime import UTC, datetime
from types import coroutine
from typing import Any

from feedback.contract.states import CANCELLED, SHUTDOWN, TIMEOUT, State
from feedback.status.status import StatusWrite
from processing.handlers.call_threads import CallThreads
from processing.handlers.event_loop import LOOP
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Outcome, describe, outcome_of
from processing.handlers.request import Request
from processing.handlers.tracebacks import let_go
from processing.ipc.progress import ProgressSlot
from processing.logs import RUNNING
from processing.worker.calls import DONE, LONG_RUN
from processing.worker.forks import FORK_GUARD
from processing.worker.interruption import cancelled, interrupted, lost
from processing.worker.records import running_status
from processing.worker.seated_run import SeatedRun
from processing.worker.task import Task
from processing.worker.traced_runs import TracedRuns

TELL_AGAIN = 1.0
"""Seconds after which a call that goes on is told to end once more: `asyncio.wait_for` loses a
cancellation that comes as what it waits for ends (Python 3.11)."""


class OpenCalls:
    """Those of one worker. Nothing that user code raises comes out."""

    def __init__(
        self,
        stage: ProgressSlot,
        publish: Callable[[list[StatusWrite]], None],
        ended: Callable[[SeatedRun], None],
        runs: TracedRuns | None = None,
    ) -> None:
        """`stage` shows which call the loop is in; `ended` is called in the loop's thread.

        `runs`: where tracing is on.
        """
        self.stage = stage
        self.runs = runs
        self._loop = LOOP.loop
        self._publish = publish
        self._ended = ended
        # The main thread adds to it, the loop's takes out, others look: one step of a dict each.
        self._open: dict[int, _Call] = {}
        self._asked: dict[int, str] = {}
        """Chunk -> who cancelled its request, and why, until that has ended."""
        self._checked: tuple[int, CallThreads] | None = None
        """The chunk whose check was asked last, and what its request hears by."""
        self._stopping = False
        self.at_hand: int | None = None
        """The chunk that the main thread is at."""
        self._long: set[str] = set()
        """Types whose last run was a long one."""

    def open(self, chunk: SeatedRun, task: Task, handler: Handler) -> None:
        """Begins a call. In the main thread."""
        task.started = time.time()
        if handler.effect == "external" or handler.type in self._long:
            self._publish([running_status(task, datetime.now(UTC))])
        call = self._open[chunk.number] = _Call(chunk, task, handler, self)
        # Whoever asks notes it first and looks for the call then: one of the two finds the other.
        if (reason := self._asked.get(chunk.number)) is not None:
            call.code, call.reason = CANCELLED, reason
        elif self._stopping:
            call.code = SHUTDOWN
        self._loop.call_soon_threadsafe(call.begin)

    def cancel(self, chunk: int, reason: str) -> None:
        """An operator wants the request of a chunk ended. In any thread."""
        self._asked[chunk] = reason
        if (call := self._open.get(chunk)) is not None:
            self._loop.call_soon_threadsafe(call.interrupt, CANCELLED, reason)
        else:  # perhaps the main thread awaits a check or a hook of it, or is in one that is none
            checked = self._checked
            if checked is not None and checked[0] == chunk:
                checked[1].told = True
            LOOP.interrupt(CANCELLED, lambda: self.at_hand == chunk)

    def tell(self, chunk: int, request: Request[Any], timeout: float) -> None:
        """Has a request hear when its check is to end: one that is no `async def` is not cancelled.

        At its deadline, and where an operator cancels it. In the main thread.
        """
        heard = request.threads = CallThreads()
        self._checked = chunk, heard
        heard.told = chunk in self._asked

        def over() -> None:
            heard.told = True

        self._loop.call_soon_threadsafe(self._loop.call_later, timeout, over)

    def stop(self) -> None:
        """All shall come to an end, as the service does. For signal handlers."""
        self._stopping = True
        for call in list(self._open.values()):
            self._loop.call_soon_threadsafe(call.interrupt, SHUTDOWN)

    def forget(self, chunk: int) -> None:
        """A chunk is done with: nobody can cancel it any more. In the main thread."""
        self._asked.pop(chunk, None)

    def over(self, call: _Call) -> None:
        """A call has ended. In the loop's thread."""
        kind, number = call.handler.type, call.chunk.number
        if (kind in self._long) != (call.task.seconds > LONG_RUN):
            self._long ^= {kind}
        del self._open[number]
        call.chunk.call_ended()
        self._ended(call.chunk)


class _Call:
    """One call; its methods run in the loop's thread."""

    def __init__(self, chunk: SeatedRun, task: Task, handler: Handler, calls: OpenCalls) -> None:
        self.chunk = chunk
        self.task = task
        self.handler = handler
        self.code: str | None = None
        """Why it was told to end, once it was."""
        self.reason: str | None = None
        self._calls = calls
        self._threads = CallThreads()
        self._job: asyncio.Task[None] | None = None
        self._entered = False
        self._alarm: asyncio.TimerHandle | None = None
        """Of its deadline; once it was told to end, of when it is told again."""

    def begin(self) -> None:
        """Enters the handler, unless it was told to end before."""
        if self.code is not None:
            self._end(_never_begun(self.code, self.reason))
            return
        task, loop = self.task, asyncio.get_running_loop()
        task.started = time.time()
        self.chunk.start(task.index, task.timeout)
        self._alarm = loop.call_later(task.timeout, self.interrupt, TIMEOUT)
        runs = self._calls.runs
        self._job = loop.create_task(self._live() if runs is None else self._live_traced(runs))
        self._job.add_done_callback(self._over)

    def interrupt(self, code: str, reason: str | None = None) -> None:
        """Tells it to end; the first to say so says why."""
        if self.code is None:
            self.code, self.reason = code, reason
            self._threads.told = True
            if self._job is not None and self._alarm is not None:
                self._alarm.cancel()
                self._alarm = self._job.get_loop().call_later(TELL_AGAIN, self._job.cancel)
                self._job.cancel()

    async def _live_traced(self, runs: TracedRuns) -> None:
        with runs.run(self.task):
            await self._live()

    async def _live(self) -> None:
        self._entered = True
        task, handler = self.task, self.handler
        RUNNING.set((task.envelope.id, handler.type))
        begun = time.perf_counter()
        try:
            result = await _shown(self._called(), self._calls.stage, self.chunk.number)
            FORK_GUARD.check()
            task.end(DONE, result)
        except BaseException as error:  # noqa: BLE001 - sys.exit of a handler is its failure, not ours
            FORK_GUARD.check(error)
            task.end(self._outcome_of(error))
            let_go(error)
        task.seconds = time.perf_counter() - begun

    async def _called(self) -> bytes | None:
        task, handler = self.task, self.handler
        payload = task.hand_out()
        request = task.request(payload) if handler.wants_request else None
        return await handler.call_awaited(payload, request, self._threads)

    def _outcome_of(self, error: BaseException) -> Outcome:
        """The end of a run that raised; what it says itself counts also where it was told to.

        But that one which an operator cancelled does not run again.
        """
        outcome = outcome_of(error, self.handler.effect)
        if self.code is None or outcome.state is State.REJECTED:
            return outcome
        if outcome.retry is not None:
            return cancelled(self.reason or "") if self.code == CANCELLED else outcome
        told = isinstance(error, asyncio.CancelledError)
        error_text = None if told else describe(error)
        return interrupted(self.code, self.handler.effect, self.reason, error_text)

    def _over(self, _job: asyncio.Task[None]) -> None:
        # A task is also `cancelled()` that has run to its end and was to be cancelled once more in
        # its last step, as `asyncio.TaskGroup` has it from Python 3.13 on.
        if self._entered:
            self._end()
        else:
            self._end(_never_begun(self.code or SHUTDOWN, self.reason))

    def _end(self, outcome: Outcome | None = None) -> None:
        if outcome is not None:
            self.task.end(outcome)
        if self._alarm is not None:
            self._alarm.cancel()
        self._calls.over(self)


def _never_begun(code: str, reason: str | None) -> Outcome:
    """The end of a call whose handler was not entered: nothing happened."""
    return cancelled(reason or "") if code == CANCELLED else lost(code, reason, begun=False)


@coroutine
def _shown(
    entered: Coroutine[Any, Any, bytes | None], stage: ProgressSlot, chunk: int
) -> Generator[Any, Any, bytes | None]:
    """Awaits, and shows on the stage when the loop is in there: who dies or hangs is known."""
    began, sent, thrown = time.monotonic(), None, None
    while True:
        stage.set(chunk, 0, began, None)
        try:
            awaited = entered.send(sent) if thrown is None else entered.throw(thrown)
        except StopIteration as end:
            result: bytes | None = end.value
            return result
        finally:
            stage.clear()
        sent = thrown = None
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - it is the handler's to catch
            thrown = error
