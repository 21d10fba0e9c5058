"""Statuses that many tasks ask for at once, read together."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from feedback.client.event_loop import LoopAnswer
from feedback.client.lazy_thread import LazyThread
from feedback.errors import ClientClosed, StoreUnavailable
from feedback.status.status import Status

Read = Callable[[Sequence[str]], list[Status | None]]
"""Answers in the order of the ids. May raise StoreUnavailable."""


class _Asked(NamedTuple):
    ids: Sequence[str]
    answer: LoopAnswer[list[Status | None]]


class SharedReads:
    """One thread that reads. What is asked for while it does is what it reads next, all at once.

    So a thousand tasks that ask a store which is away are told after one time-out, not a thousand.
    The thread starts with the first use.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False  # guarded by _lock: nothing is asked after the end
        self._thread = LazyThread("reads", self._run)  # started with _lock

    async def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One answer an id, in their order. Raises as the read does, ClientClosed."""
        for name in ids:
            name.encode()  # what is no valid text raises here, and not for others
        asked = _Asked(list(ids), LoopAnswer())
        with self._lock:
            if self._closed:
                raise ClientClosed
            self._thread.start()
            self._asked.put(asked)
        return await asked.answer.future

    def close(self) -> None:
        """Ends the thread, when it has answered what was asked; blocks as long as that takes."""
        with self._lock:
            self._closed = True
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._asked.get()) is not None:
            together, last = self._gather(first)
            # Who was cancelled meanwhile is not read for.
            wanted = [one for one in together if one.answer.wanted]
            if wanted:
                self._answer(wanted)
            if last:
                return

    def _gather(self, first: _Asked) -> tuple[list[_Asked], bool]:
        together = [first]
        while True:
            try:
                asked = self._asked.get_nowait()
            except queue.Empty:
                return together, False
            if asked is None:
                return together, True
            together.append(asked)

    def _answer(self, wanted: list[_Asked]) -> None:
        try:
            statuses = self._read([name for asked in wanted for name in asked.ids])
        except StoreUnavailable as error:
            for asked in wanted:
                # One each: an error grows by where it is raised.
                asked.answer.fail(StoreUnavailable(*error.args))
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            for asked in wanted:
                asked.answer.fail(error)
        else:
            start = 0
            for asked in wanted:
                asked.answer.give(statuses[start : start + len(asked.ids)])
                start += len(asked.ids)
