"""What a loop of asyncio and the client's threads have to do with each other.

Threads wake tasks; what blocks is done in a thread. Neither ever waits for the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeVar

from feedback.client.waiter import Watch

P = ParamSpec("P")
T = TypeVar("T")


class LoopBell:
    """Wakes one task of the loop that it was made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._rung = False  # and the loop has not heard it yet

    def ring(self) -> None:
        """Something happened. From any thread; rung often, it costs the loop one call."""
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._heard)

    async def wait(self, timeout: float) -> None:
        """Returns when it has rung since the last wait, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()
        self._news.clear()

    def _heard(self) -> None:
        self._rung = False
        self._news.set()


class LoopWatch(Watch):
    """A wait of a task."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._bell = LoopBell()

    def wake(self) -> None:
        self._bell.ring()

    async def wait(self, timeout: float) -> None:
        """As LoopBell.wait()."""
        await self._bell.wait(timeout)


class LoopAnswer(Generic[T]):
    """What a thread answers a task of the loop that this was made in.

    concurrent.futures.Future has a Condition, which a signal handler that raises in the loop's
    thread may leave locked (see Bell): whoever answers would stand still for good. Here the future
    is the loop's own, and is settled in it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()
        """What the task waits for."""

    @property
    def wanted(self) -> bool:
        """Whether nobody has cancelled it. From any thread."""
        return not self.future.cancelled()

    def give(self, result: T) -> None:
        """From any thread; told to nobody where it was cancelled, or the loop closed."""
        self._settle(self.future.set_result, result)

    def fail(self, error: BaseException) -> None:
        """Raises it where it is awaited; else as give()."""
        self._settle(self.future.set_exception, error)

    def _settle(self, settle: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settled, settle, value)

    def _settled(self, settle: Callable[[Any], None], value: Any) -> None:
        if not self.future.done():
            settle(value)


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Calls something that blocks, for a bounded time, in a thread of its own.

    Not in the loop's own executor: the program may have filled it. Who is cancelled leaves the
    call to end by itself.
    """
    answer: LoopAnswer[T] = LoopAnswer()

    def call() -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            answer.fail(error)
        else:
            answer.give(result)

    threading.Thread(target=call, name="aside", daemon=True).start()
    return answer.future
