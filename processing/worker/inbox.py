"""A worker's inbox: chunks that wait, and which of their requests have been started.

A thread reads the channel, so that the main process can call back what has not been started while
a handler runs. Whether a request was started or recalled is decided under one lock, so exactly one
side gets it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from processing.handlers.stopping import STOPPING
from processing.ipc.channel import BlockingChannel, ChannelClosed
from processing.ipc.frames import Frame, Recall, Returned, RunChunk, Stop
from processing.ipc.parent_watch import EXIT_ORPHANED
from processing.ipc.progress import Slot

UNSTARTED, STARTED, RECALLED = 0, 1, 2


class Work:
    """One chunk in a worker: its records, and what may still be started of it."""

    def __init__(self, inbox: Inbox, frame: RunChunk) -> None:
        self.number, self.token, self.records, self.suspect = frame
        self._inbox = inbox
        self._states = bytearray(len(self.records))

    def start(self, index: int, timeout: float | None) -> bool:
        """A request is about to run; False when it was recalled and must be left alone.

        May be called again for a request that was started before.
        """
        states = self._states
        with self._inbox.lock:
            if states[index] == RECALLED:
                return False
            states[index] = STARTED
        self._show(index, timeout)
        return True

    def start_batch(self, indices: Sequence[int], timeout: float | None) -> list[int]:
        """Requests are about to run together; returns those that were not recalled."""
        states = self._states
        with self._inbox.lock:
            mine = [index for index in indices if states[index] != RECALLED]
            for index in mine:
                states[index] = STARTED
        if mine:
            self._show(mine[0] if len(mine) == 1 else None, timeout)
        return mine

    def keep(self, indices: Sequence[int]) -> list[int]:
        """Requests end without a start; returns those that were not recalled before."""
        states = self._states
        with self._inbox.lock:
            mine = [index for index in indices if states[index] != RECALLED]
            for index in mine:
                states[index] = STARTED
        return mine

    def finish(self) -> None:
        """No request runs any more."""
        self._inbox.slot.clear()

    def _show(self, index: int | None, timeout: float | None) -> None:
        if STOPPING.is_set() and not self._inbox.leaving:
            STOPPING.clear()  # it was meant for the request before
        self._inbox.slot.set(self.number, index, time.monotonic(), timeout)

    def recall(self) -> list[int]:
        """Marks what was not started as recalled; the caller holds the inbox's lock."""
        states = self._states
        unstarted = [index for index, state in enumerate(states) if state == UNSTARTED]
        for index in unstarted:
            states[index] = RECALLED
        return unstarted

    @property
    def recalled_whole(self) -> bool:
        """Nothing is left to run."""
        return self._states.count(RECALLED) == len(self._states)


class Inbox:
    """Chunks from the main process, in order."""

    def __init__(
        self,
        channel: BlockingChannel,
        slot: Slot,
        on_orphaned: Callable[[], None] = lambda: os._exit(EXIT_ORPHANED),
    ) -> None:
        """`on_orphaned` is called on the reading thread when the main process is gone."""
        self._on_orphaned = on_orphaned
        self.channel = channel
        self.slot = slot
        self.lock = threading.Lock()
        self.leaving = False
        """The main process wants this worker to end after the request that it runs."""
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._works: deque[Work] = deque()
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def next(self) -> Work | None:
        """Waits for the next chunk; None once the worker shall leave."""
        return self._queue.get()

    def finished(self, work: Work) -> None:
        """A chunk was run; there is nothing to recall of it."""
        with self.lock:
            self._works.remove(work)

    def _read(self) -> None:
        try:
            while (frame := self.channel.receive()) is not None:
                self._take(frame)
        except ChannelClosed:
            self._on_orphaned()

    def _take(self, frame: Frame) -> None:
        match frame:
            case RunChunk():
                work = Work(self, frame)
                with self.lock:
                    self._works.append(work)
                self._queue.put(work)
            case Recall():
                self._recall()
            case Stop():
                self.leaving = True
                self._recall()
                self._queue.put(None)
            case _:
                raise AssertionError(f"the main process sent a worker {frame!r}")

    def _recall(self) -> None:
        with self.lock:
            # The later chunk first: the main process puts each in front of what is there.
            recalled = [(work.number, work.recall()) for work in reversed(self._works)]
        for number, indices in recalled:
            if indices:
                self.channel.send(Returned(number, indices))
