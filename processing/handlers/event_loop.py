"""The event loop of a process: a thread of its own in which `async def` code of the app runs.

Handlers, their checks and hooks share it, so what a start hook opened there, such as a session of
an HTTP client, is of use in every call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from feedback.contract.states import TIMEOUT
from processing.handlers.call_threads import LoopThreads
from processing.handlers.errors import Interrupted

T = TypeVar("T")

_log = logging.getLogger("oncepool.app")


class EventLoop:
    """Started when it is first used; it ends with its process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # written under the lock
        self._thread: threading.Thread | None = None
        self._waited: _Waited | None = None
        """What `run` waits for, in the main thread, which alone writes it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs."""
        with self._lock:  # not for signal handlers
            if self._loop is None:
                loop = asyncio.new_event_loop()
                loop.set_default_executor(LoopThreads())
                thread = threading.Thread(
                    target=self._turn, args=(loop,), name="event loop", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread left now
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Runs a coroutine there and waits for its end. Raises what it raises, and Interrupted.

        It is interrupted after `timeout` seconds, or by `interrupt`. For one thread; not to be
        called in the loop's own.
        """
        loop = self.loop
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this would wait in the event loop for itself: await it instead")
        ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        waited = self._waited = _Waited()

        def begin() -> None:
            waited.task = task = _watched(loop, coroutine, ended.put)
            if waited.code is not None:
                task.cancel()
            elif timeout is not None:
                alarm = loop.call_later(timeout, waited.cancel, TIMEOUT)
                task.add_done_callback(lambda _: alarm.cancel())

        loop.call_soon_threadsafe(begin)
        result, error = ended.get()
        self._waited = None
        if error is None:
            return result  # type: ignore[no-any-return]
        if waited.code is not None and isinstance(error, asyncio.CancelledError):
            raise Interrupted(waited.code)
        raise error

    def interrupt(self, code: str, meant: Callable[[], bool] = lambda: True) -> None:
        """Cancels what `run` waits for now, if anything; for signal handlers. `code`: why.

        `meant`, asked in the loop's thread, says whether that is still what is to be cancelled.
        """
        if self._loop is not None and (waited := self._waited) is not None:
            self._loop.call_soon_threadsafe(waited.cancel, code, meant)

    def enter(self, manager: AbstractAsyncContextManager[Any]) -> tuple[Any, Callable[[], None]]:
        """Enters a context manager there: what it gives, and what leaves it again.

        One task enters and leaves it, as task groups and the like need it.
        """
        loop, closing = self.loop, asyncio.Event()
        said: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        async def live() -> None:
            async with manager as given:
                said.put((given, None))
                await closing.wait()

        def leave() -> None:
            loop.call_soon_threadsafe(closing.set)
            _, error = said.get()
            if error is not None:
                raise error

        loop.call_soon_threadsafe(lambda: _watched(loop, live(), said.put))
        given, error = said.get()
        if error is not None:
            raise error
        return given, leave

    @staticmethod
    def _turn(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not loop.is_closed():
            try:
                loop.run_forever()
            except BaseException:  # noqa: BLE001 - a task of the app's own that raised SystemExit or its like
                _log.exception("a task of the app left the event loop, which goes on")


class _Waited:
    """A coroutine that `run` waits for."""

    task: asyncio.Task[Any] | None = None
    """None until the loop has got to it."""
    code: str | None = None
    """Why it was cancelled, once it was."""

    def cancel(self, code: str, meant: Callable[[], bool] = lambda: True) -> None:
        """The first to say so says why. In the loop's thread."""
        if self.code is None and meant():
            self.code = code
            if self.task is not None:
                self.task.cancel()


_tasks: Final[set[asyncio.Task[Any]]] = set()
"""The loop itself holds its tasks weakly."""


def _watched(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    on_end: Callable[[tuple[Any, BaseException | None]], None],
) -> asyncio.Task[Any]:
    """Starts a task whose end is told, whatever that is."""
    ends: list[tuple[Any, BaseException | None]] = []

    async def caught() -> None:
        try:
            ends.append((await coroutine, None))
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop
            ends.append((None, error))

    def ended(task: asyncio.Task[Any]) -> None:
        _tasks.discard(task)
        if ends:  # also where it was to be cancelled once more in its last step
            on_end(ends[0])
        else:  # cancelled before it began
            coroutine.close()
            on_end((None, asyncio.CancelledError()))

    task = loop.create_task(caught())
    _tasks.add(task)
    task.add_done_callback(ended)
    return task


LOOP: Final = EventLoop()
"""That of this process."""
