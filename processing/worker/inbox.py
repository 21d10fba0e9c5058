"""A worker's inbox: chunks that wait, what of them is called back, and what is said of them.

A thread reads the channel, so that the main process can call back what has not been started while
a handler runs.

Requests of one key may follow each other in two chunks of the same worker. Where the first chunk
gives one back, for whatever cause, what follows it must not run before it. So whenever something is
given back, all later chunks are; also those that are still on their way, which their count of
returns shows.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from feedback.backend import Backend
from processing.handlers.stopping import STOPPING
from processing.ipc.channel import BlockingChannel, ChannelClosed
from processing.ipc.frames import (
    Cancel,
    Connected,
    Frame,
    Recall,
    RenewLeases,
    Report,
    Returned,
    RunChunk,
    Stop,
)
from processing.ipc.parent_watch import EXIT_ORPHANED
from processing.ipc.progress import ProgressSlot, Running
from processing.ipc.standard_streams import exit_at_once
from processing.worker.chunk_run import ChunkRun
from processing.worker.seated_run import SeatedRun

if TYPE_CHECKING:
    from processing.worker.lease_keeper import LeaseKeeper
    from processing.worker.open_calls import OpenCalls


class Inbox:
    """Chunks from the main process, in order."""

    def __init__(
        self,
        channel: BlockingChannel,
        slot: ProgressSlot,
        on_orphaned: Callable[[], None] = lambda: os._exit(EXIT_ORPHANED),
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        """What is called on the reading thread: once the main process is gone, and on a `Cancel`.

        Without an `on_cancel` the main thread gets SIGTERM then.
        """
        self._on_orphaned = on_orphaned
        self._on_cancel = on_cancel or _interrupt
        self._cancel: Cancel | None = None
        """The request that was cancelled last, until its chunk is reported."""
        self.channel = channel
        self.slot = slot
        self.lock = threading.Lock()
        self.leaving = False
        """The main process wants this worker to end after the request that it runs."""
        self.calls: OpenCalls | None = None
        """Where the app has handlers whose calls go on by themselves."""
        self.leases: LeaseKeeper | None = None
        """Set as soon as there may be a session."""
        self._last_words = False
        """The worker shall leave, once the calls have ended that go on by themselves."""
        self._queue: SimpleQueue[ChunkRun | None] = SimpleQueue()
        # All below is guarded by the lock; so is sending, or a report might overtake a return.
        self._chunks: deque[ChunkRun] = deque()
        self._returns = 0
        """Frames that gave something back."""
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def next(self) -> ChunkRun | None:
        """Waits for the next chunk, or a call that has ended; None once the worker shall leave."""
        if self._last_words and not self._calls_open():
            return None
        chunk = self._queue.get()
        if chunk is None and self._calls_open():
            self._last_words = True
            chunk = self._queue.get()
        if chunk is not None and self.calls is not None:
            self.calls.at_hand = chunk.number
        return chunk

    def _calls_open(self) -> bool:
        with self.lock:
            return any(chunk.under_way for chunk in self._chunks)

    def ended(self, chunk: ChunkRun) -> None:
        """The call of a chunk has ended: it comes once more. In any thread."""
        self._queue.put(chunk)

    def report(self, chunk: ChunkRun, report: Report) -> None:
        """A chunk was run: says what became of it. There is nothing to recall of it any more."""
        with self.lock:
            self._chunks.remove(chunk)
            if chunk.seated and self.calls is not None:
                self.calls.forget(chunk.number)
            if self._cancel is not None and self._cancel.chunk <= chunk.number:
                self._cancel = None
            if report.returned or report.unclear:
                self._recall()
                self._returns += 1
            self.channel.send(report)

    def connected(self, backend: Backend) -> None:
        """Says so before anything is done there: who outlives this worker may have to end it.

        Where it cannot be said (a handler has closed the descriptor), this process ends: that is
        the failure of no request.
        """
        try:
            with self.lock:
                self.channel.send(Connected(backend))
        except ChannelClosed:
            self._on_orphaned()

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        """Shows the main process which request runs, and until when it may."""
        self.slot.set(chunk, index, now, timeout)
        if self._cancel is not None or STOPPING.told:
            self.turn_to(chunk, index)

    def clear(self) -> None:
        """Shows that none runs."""
        self.slot.clear()

    def turn_to(self, chunk: int, index: int | None) -> None:
        """What was meant for one request means nothing to another, but stays with the one.

        That may be begun more than once: a segment that failed is run again, one by one.
        """
        asked = self._cancel
        if asked is not None and (chunk, index) == asked[:2]:
            STOPPING.cancelled = asked.reason
            STOPPING.set()
            return
        STOPPING.cancelled = None
        if not self.leaving:
            STOPPING.clear()

    def cancelled(self, running: Running | None) -> str | None:
        """Who cancelled what runs, and why; None where nobody did."""
        asked = self._cancel
        if running is None or asked is None or (running.chunk, running.index) != asked[:2]:
            return None
        return asked.reason

    def _read(self) -> None:
        try:
            while (frame := self.channel.receive()) is not None:
                self._take(frame)
        except ChannelClosed:
            self._on_orphaned()
        except BaseException:  # noqa: BLE001 - no memory for a frame, for one
            # Deaf, this worker would keep what it has for good; its death is known and mended.
            traceback.print_exc()
            exit_at_once(1)

    def _take(self, frame: Frame) -> None:
        match frame:
            case RunChunk(number, token, records, suspect, returns, seat):
                chunk = ChunkRun(number, token, records, suspect, gate=self)
                # Without: another worker's app has such handlers, this one's is of another version.
                if seat is not None and self.calls is not None:
                    gate = _Seat(self, self.slot.seat(seat))
                    chunk = SeatedRun(number, token, records, gate, self.calls)
                with self.lock:
                    self._chunks.append(chunk)
                    if returns != self._returns:
                        self._give_back(chunk)
                self._queue.put(chunk)
            case Recall():
                with self.lock:
                    self._recall()
            case Cancel(chunk=number, reason=reason):
                with self.lock:
                    if self.calls is not None and self._is_seated(number):
                        self.calls.cancel(number, reason)
                        return
                    self._cancel = frame
                self._on_cancel()
            case RenewLeases():
                if self.leases is not None:
                    self.leases.want(frame)
            case Stop():
                self.leaving = True
                with self.lock:
                    self._recall()
                self._queue.put(None)
            case _:
                raise AssertionError(f"the main process sent a worker {frame!r}")

    def _is_seated(self, number: int) -> bool:
        return any(chunk.number == number and chunk.seated for chunk in self._chunks)

    def _recall(self) -> None:
        for chunk in self._chunks:
            self._give_back(chunk)

    def _give_back(self, chunk: ChunkRun) -> None:
        if indices := chunk.recall():
            self._returns += 1
            self.channel.send(Returned(chunk.number, indices))


class _Seat:
    """What a chunk in a seat shares with the rest of its worker."""

    def __init__(self, inbox: Inbox, slot: ProgressSlot) -> None:
        self.lock = inbox.lock
        self._inbox = inbox
        self._slot = slot

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        self._slot.set(chunk, index, now, timeout)
        if STOPPING.told:
            self._inbox.turn_to(chunk, index)

    def clear(self) -> None:
        self._slot.clear()


def _interrupt() -> None:
    """The main thread looks what it runs, also where it waits for something."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
