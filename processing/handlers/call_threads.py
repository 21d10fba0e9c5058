"""Threads that calls of `async def` handlers have at work: a call has ended when they have, too.

The coroutine of a call can be cancelled, a thread cannot: what it does outside goes on. So whose a
thread is stands in a context variable, and the end of a call waits for its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from processing.ipc.progress import SEATS

T = TypeVar("T")


class CallThreads:
    """Those of one call. Its methods are for the loop's thread."""

    __slots__ = ("_work", "told")

    def __init__(self) -> None:
        self.told = False
        """The call was told to end, or has ended but for its threads. Read in any thread."""
        self._work: set[Future[Any]] = set()

    async def outlive(self, call: Awaitable[T]) -> T:
        """Awaits a call, then its threads; returns or raises what the call did."""
        _CALL.set(self)
        try:
            return await call
        finally:
            if self._work:
                self.told = True
                await self._ended()

    def note(self, work: Future[Any]) -> None:
        """A thread works for the call, or will."""
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    async def _ended(self) -> None:
        """Waits, whoever cancels that: it is for the threads that the call goes on."""
        loop = asyncio.get_running_loop()
        while left := list(self._work):
            over = asyncio.Event()
            left[0].add_done_callback(_wakes(loop, over))
            with suppress(asyncio.CancelledError):
                await over.wait()


def _wakes(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> Callable[[Any], None]:
    return lambda _: loop.call_soon_threadsafe(over.set)  # type: ignore[return-value]


_CALL: Final[ContextVar[CallThreads | None]] = ContextVar("oncepool_call", default=None)
"""The call that code in the event loop belongs to."""
_LOOKUPS: Final = (socket.getaddrinfo, socket.getnameinfo)
"""What loops do in threads without any effect: nobody waits for a name server that hangs."""


class LoopThreads(ThreadPoolExecutor):
    """The threads of an event loop: one for each call that may be open, so that none waits.

    asyncio's own are few: where as many hang, all else that needs one stands still.
    """

    def __init__(self) -> None:
        super().__init__(SEATS, "event loop's")

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Has a thread run it, for the call whose code asks for that."""
        work = super().submit(fn, *args, **kwargs)
        call = _CALL.get()
        if call is not None and fn not in _LOOKUPS:
            call.note(work)
        return work
