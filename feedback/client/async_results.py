"""Reading result records in the tasks of an event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from types import TracebackType
from typing import Final, Self

from feedback.client.event_loop import in_thread
from feedback.client.read_ahead import ReadAhead
from feedback.client.result import ReadMessage, Result
from feedback.client.results import Results

_SLICE: Final = 0.2


class AsyncResults:
    """Results, awaited: for `async for`, by one task. A context manager; close it after use.

    A record counts as handled as of Results: when the next one is asked for, say.
    Who is cancelled while it waits loses no record: the next to ask gets it.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._taken: deque[ReadMessage] = deque()  # read, and not given to anybody yet
        self._ahead = ReadAhead()
        self._taking: asyncio.Future[list[ReadMessage]] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Result:
        while True:
            result = await self.poll(_SLICE)
            if result is not None:
                return result
            if self._results.closed:
                raise StopAsyncIteration

    async def poll(self, timeout: float) -> Result | None:
        """The next record; None where none comes within `timeout` seconds, or when closed.

        Raises ResultsFailed where waiting does not help.
        """
        end = time.monotonic() + timeout
        while not self._results.closed:
            while self._taken and self._ahead.gives():
                if (result := self._results.turn_to(self._taken.popleft())) is not None:
                    return result
            self._start_anew()
            left = end - time.monotonic()
            await self._take(max(0.0, min(_SLICE, left)))
            if not self._taken and left <= 0:
                break
        if self._results.closed:
            await self._take(0.0)  # it closes when the last record is handled: it is now
        return None

    async def close(self) -> None:
        """Ends the iteration, also one in another task. As Results.close()."""
        await in_thread(self._results.close)

    async def __aenter__(self) -> Self:
        self._results.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread(self._results.__exit__, kind, error, trace)

    def _start_anew(self) -> None:
        """Nothing more is given out of what was taken: time is over, or all of it was."""
        self._ahead.handled()
        if self._taken:
            self._taken.clear()
            self._results.come_again()

    async def _take(self, timeout: float) -> None:
        """Waits for records; the wait goes on without a task that is cancelled."""
        if self._taking is None:
            self._taking = in_thread(self._results.take, timeout, self._ahead.most)
            self._taking.add_done_callback(self._took)
        taking = self._taking
        try:
            await asyncio.shield(taking)
        except BaseException as error:
            # Who is cancelled has not heard of a failure: it stays until somebody has.
            if taking.cancelled() or not isinstance(error, asyncio.CancelledError):
                self._taking = None
            raise
        # Awaited after it was done, it does not let the loop come to its callback.
        self._took(taking)

    def _took(self, taking: asyncio.Future[list[ReadMessage]]) -> None:
        if self._taking is taking and not taking.cancelled() and taking.exception() is None:
            self._taking = None
            self._taken += taking.result()
            self._ahead.read()
