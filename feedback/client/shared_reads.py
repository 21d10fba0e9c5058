"""Statuses that many tasks ask for at once, read together, so many at a time."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from feedback.client.event_loop import LoopAnswer
from feedback.client.lazy_thread import LazyThread
from feedback.errors import ClientClosed, StoreUnavailable
from feedback.status.status import Status, has_large_result

AT_ONCE: Final = 50
"""Ids that are read together, unless one asks for more: all that is read is held until then."""
MOST: Final = 200
"""The same where no results are large, as round trips may take their time."""

Read = Callable[[Sequence[str]], list[Status | None]]
"""Answers in the order of the ids. May raise StoreUnavailable."""


class _Asked(NamedTuple):
    ids: Sequence[str]
    answer: LoopAnswer[list[Status | None]]


class SharedReads:
    """One thread that reads, for all that wait: some ids at a time, who asked first first.

    They are answered before the next ones are read. When the store is away, all that wait are told:
    a thousand tasks after one time-out, not a thousand. The thread starts with the first use.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False  # guarded by _lock: nothing is asked after the end
        self._thread = LazyThread("reads", self._run)  # started with _lock
        self._at_once = AT_ONCE  # the thread's own

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
        waiting: deque[_Asked] = deque()
        ended = False
        while waiting or not ended:
            ended = self._gather(waiting) or ended
            self._answer_some(waiting)

    def _gather(self, waiting: deque[_Asked], *, block: bool = True) -> bool:
        """Adds what is asked for, once something is. Whether nothing will be after that."""
        while True:
            try:
                asked = self._asked.get(block=block and not waiting)
            except queue.Empty:
                return False
            if asked is None:
                return True
            waiting.append(asked)

    def _answer_some(self, waiting: deque[_Asked]) -> None:
        part = _first(waiting, self._at_once)
        try:
            self._answer(part)
        except StoreUnavailable as error:
            if self._gather(waiting, block=False):  # who has asked meanwhile waits for no other
                self._asked.put(None)
            for asked in (*part, *waiting):
                # One each: an error grows by where it is raised.
                asked.answer.fail(StoreUnavailable(*error.args))
            waiting.clear()
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            for asked in part:
                asked.answer.fail(error)

    def _answer(self, part: Sequence[_Asked]) -> None:
        ids = [name for asked in part for name in asked.ids]
        more, self._at_once = min(MOST, 2 * self._at_once), AT_ONCE  # also where this fails
        statuses = self._read(ids) if ids else []
        if ids and not any(one is not None and has_large_result(one) for one in statuses):
            self._at_once = more
        start = 0
        for asked in part:
            asked.answer.give(statuses[start : start + len(asked.ids)])
            start += len(asked.ids)


def _first(waiting: deque[_Asked], most: int) -> list[_Asked]:
    """Takes those to be read next; who was cancelled meanwhile is not read for."""
    part: list[_Asked] = []
    ids = 0
    while waiting and (not part or ids + len(waiting[0].ids) <= most):
        asked = waiting.popleft()
        if asked.answer.wanted:
            part.append(asked)
            ids += len(asked.ids)
    return part
