"""Ends requests that run, and waits for that without a connection to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from consumer.admin.cancelling import Withdraw
from consumer.admin.journal import JournalUnreachable
from consumer.gateway.race import unless
from feedback.client.event_loop import in_thread
from feedback.errors import ClientClosed
from feedback.operations.request_reads import Row

T = TypeVar("T")
Stopped = Callable[[], Coroutine[Any, Any, None]]
"""Returns when all waits end."""

MOVE_WITHIN: Final = 10.0
"""Seconds in which the journal has to take a move, or to give a list."""
MOST_AT_ONCE: Final = 32
_MARGIN: Final = 1.0
STOPPING: Final = "this gateway is stopping: what was told to end may end yet; look at it again"


async def never() -> None:
    """Does not return: nobody stops."""
    await asyncio.Event().wait()


class RunningEnds:
    """Each look at the journal takes a connection and gives it back, so that others get on.

    So many wait at once, each in a thread of its own, which keeps its place until it has ended,
    whether anybody waits for it or not; whoever comes on top waits for one of them.
    """

    def __init__(self, stopped: Stopped = never) -> None:
        self._stopped = stopped
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def end(
        self,
        end: Callable[[Withdraw], T],
        withdraw: Callable[[Sequence[str]], Awaitable[list[Row]]],
        wait: float,
    ) -> T:
        """What `end` returns, which is given what asks the journal through `withdraw`.

        `end` takes `wait` seconds, and what each look at the journal takes. Raises
        JournalUnreachable where all of it takes longer, ClientClosed where the gateway stops
        meanwhile, and what both raise.
        """
        loop = asyncio.get_running_loop()

        def withdrawn(ids: Sequence[str]) -> list[Row]:
            asked = asyncio.run_coroutine_threadsafe(_awaited(withdraw(ids)), loop)
            try:
                return asked.result(MOVE_WITHIN + _MARGIN)
            except TimeoutError:
                asked.cancel()
                raise JournalUnreachable(
                    f"no answer within {MOVE_WITHIN + _MARGIN:g} s; look at it again"
                ) from None

        def ended() -> T:
            try:
                return end(withdrawn)
            finally:
                with suppress(RuntimeError):  # the loop was closed: nobody comes any more
                    loop.call_soon_threadsafe(self._places.release)

        async def heard() -> T:
            await self._places.acquire()
            try:
                answer = in_thread(ended)
            except RuntimeError:  # there are no more threads
                self._places.release()
                raise
            return await answer

        try:
            async with asyncio.timeout(MOVE_WITHIN + wait):
                return await unless(heard(), self._stopped(), ClientClosed(STOPPING))
        except TimeoutError:
            raise JournalUnreachable(
                f"nothing was heard within {MOVE_WITHIN + wait:g} s of what was to be cancelled;"
                " look at it again"
            ) from None


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer
