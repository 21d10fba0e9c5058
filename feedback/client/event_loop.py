"""What a loop of asyncio and the client's threads have to do with each other.

Threads wake tasks; what blocks is done in a thread. Neither ever waits for the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import ParamSpec, TypeVar

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


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Calls something that blocks, for a bounded time, in a thread of its own.

    Not in the loop's own executor: the program may have filled it. Who is cancelled leaves the
    call to end by itself.
    """
    called: Future[T] = Future()

    def call() -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            called.set_exception(error)
        else:
            called.set_result(result)

    called.set_running_or_notify_cancel()  # so that nobody's end keeps it from being called
    answer = asyncio.wrap_future(called)
    threading.Thread(target=call, name="aside", daemon=True).start()
    return answer
