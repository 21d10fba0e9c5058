"""A worker's inbox: chunks that wait, and what of them is called back.

A thread reads the channel, so that the main process can call back what has not been started while
a handler runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from processing.handlers.stopping import STOPPING
from processing.ipc.channel import BlockingChannel, ChannelClosed
from processing.ipc.frames import Frame, Recall, Returned, RunChunk, Stop
from processing.ipc.parent_watch import EXIT_ORPHANED
from processing.ipc.progress import Slot
from processing.worker.chunk_run import ChunkRun


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
        self._queue: SimpleQueue[ChunkRun | None] = SimpleQueue()
        self._chunks: deque[ChunkRun] = deque()
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def next(self) -> ChunkRun | None:
        """Waits for the next chunk; None once the worker shall leave."""
        return self._queue.get()

    def finished(self, chunk: ChunkRun) -> None:
        """A chunk was run; there is nothing to recall of it."""
        with self.lock:
            self._chunks.remove(chunk)

    def show(self, chunk: int, index: int | None, timeout: float | None) -> None:
        """Shows the main process which request runs, and until when it may."""
        if STOPPING.is_set() and not self.leaving:
            STOPPING.clear()  # it was meant for the request before
        self.slot.set(chunk, index, time.monotonic(), timeout)

    def clear(self) -> None:
        """Shows that none runs."""
        self.slot.clear()

    def _read(self) -> None:
        try:
            while (frame := self.channel.receive()) is not None:
                self._take(frame)
        except ChannelClosed:
            self._on_orphaned()

    def _take(self, frame: Frame) -> None:
        match frame:
            case RunChunk():
                chunk = ChunkRun(*frame, gate=self)
                with self.lock:
                    self._chunks.append(chunk)
                self._queue.put(chunk)
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
            recalled = [(chunk.number, chunk.recall()) for chunk in reversed(self._chunks)]
        for number, indices in recalled:
            if indices:
                self.channel.send(Returned(number, indices))
