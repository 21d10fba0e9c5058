"""Sends statuses from a thread of its own, so that Redis never slows or fails a request."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from feedback.backoff import Breaker
from feedback.errors import StoreUnavailable
from feedback.status.status import StatusWrite
from feedback.status.store import StatusStore

log = logging.getLogger("oncepool.statuses")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between two tries while the store is away: statuses are to come back when it does."""
_BATCH: Final = 500
_TOO_LARGE: Final = "a status of request %r is left out: it has %d bytes, at most %d can wait"


@dataclass(frozen=True, slots=True)
class SenderStats:
    """What a sender has done so far."""

    queued: int  # statuses that wait
    written: int
    dropped: int  # the queue was full, or the store cannot hold them
    failures: int  # batches that the store did not take
    open: bool  # the breaker is: the store is away


class StatusSender:
    """A bounded queue that drops its oldest statuses when it is full, and a thread that empties it.

    A dropped or lost status is never wrong, only missing: the producer's wait ends with its
    time-out, and sending again brings the answer from the journal. One that does not get through
    while others do, as it is too large for the store's time-out, is dropped: it would stand in the
    way of all that come after it.
    """

    def __init__(
        self,
        store: StatusStore,
        *,
        max_queue: int = 10_000,
        max_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.monotonic,
        breaker: Breaker | None = None,
    ) -> None:
        self._store = store
        self._max_queue = max_queue
        self._max_bytes = max_bytes
        self._clock = clock
        # Entered itself, never by way of _changed: see feedback.bell.Bell.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # All below is guarded by _lock.
        self._queue: deque[StatusWrite] = deque()
        self._bytes = 0  # of the values in _queue
        self._sending: Sequence[StatusWrite] = ()  # what the thread has taken
        self._probing = False  # what it has taken only asks whether the store is back
        self._alone = 0  # so many are sent one by one: one of them may be what is not taken
        self._doubtful = False  # the last batch was not taken
        self._suspect: StatusWrite | None = None  # not taken, though the store answered
        self._breaker = breaker or Breaker(FIRST_PAUSE, LONGEST_PAUSE)
        self._behind = False  # catch_up() has waited in vain, and not all was sent since
        self._hurry = False  # flush() wants a try now, open or not
        self._closed = False
        self._written = self._dropped = self._failures = 0
        self._thread = threading.Thread(target=self._run, name="statuses", daemon=True)
        self._thread.start()

    def put(self, writes: Sequence[StatusWrite]) -> None:
        """Takes statuses to send. Never blocks; the oldest are dropped when the queue is full."""
        fitting = [write for write in writes if len(write.value) <= self._max_bytes]
        if len(fitting) < len(writes):
            for write in writes:
                if len(write.value) > self._max_bytes:
                    log.error(_TOO_LARGE, write.id, len(write.value), self._max_bytes)
        size = sum(len(write.value) for write in fitting)
        with self._lock:
            if self._closed:
                self._dropped += len(writes)
                return
            self._dropped += len(writes) - len(fitting)
            self._queue.extend(fitting)
            self._bytes += size
            self._trim()
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Waits until everything is sent. False when time runs out or the store is away."""
        end = self._clock() + timeout
        with self._lock:
            failures = self._failures
            self._hurry = bool(self._queue)
            self._changed.notify_all()
            while self._queue or self._sending:
                left = end - self._clock()
                if left <= 0 or self._failures > failures or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
            return True

    def catch_up(self, timeout: float) -> None:
        """Waits until all is sent, at most `timeout` seconds; not while the store is away.

        Nor for one that is slow: after a wait in vain the next one comes when all was sent again.
        """
        end = self._clock() + timeout
        with self._lock:
            while (self._queue or self._sending) and not (self._breaker.open or self._closed):
                left = end - self._clock()
                if left <= 0 or self._behind:
                    self._behind = True
                    return
                self._changed.wait(left)
            self._behind = False

    def unsent(self, ids: Collection[str]) -> dict[str, StatusWrite]:
        """Those of these ids that wait here, or are being written: the latest of each.

        Takes as long as the queue is, so it is for ids that are not in the store.
        """
        with self._lock:
            return {one.id: one for one in chain(self._sending, self._queue) if one.id in ids}

    def close(self, timeout: float = 1.0) -> bool:
        """Sends what it can within `timeout` seconds and ends the thread; as flush()."""
        sent = self.flush(timeout)
        with self._lock:
            self._closed = True
            self._dropped += len(self._queue)
            self._queue.clear()
            self._bytes = 0
            self._changed.notify_all()
        # A write that hangs ends with the store's time-out; the thread is a daemon anyway.
        self._thread.join(timeout)
        return sent

    @property
    def dropped(self) -> int:
        """Statuses that never reached the store."""
        with self._lock:
            return self._dropped

    def stats(self) -> SenderStats:
        """How it stands now."""
        with self._lock:
            return SenderStats(
                queued=len(self._queue) + len(self._sending),
                written=self._written,
                dropped=self._dropped,
                failures=self._failures,
                open=self._breaker.open,
            )

    def _run(self) -> None:
        while batch := self._take():
            try:
                lost = self._send(batch)
            except StoreUnavailable as error:
                self._failed(batch, error)
            else:
                self._succeeded(len(batch) - lost, lost)

    def _take(self) -> list[StatusWrite]:
        """The next batch, when it may be tried; empty when closed."""
        with self._lock:
            while not self._closed:
                tried = self._hurry or not self._breaker.open
                pause = 0.0 if tried else self._breaker.pause(self._clock())
                if self._queue and not pause:
                    break
                self._changed.wait(pause or None)
            else:
                return []
            self._hurry = False
            self._probing = self._breaker.open
            if self._probing:
                batch = [self._take_smallest()]
            else:
                count = 1 if self._alone else min(len(self._queue), _BATCH)
                batch = [self._queue.popleft() for _ in range(count)]
            self._bytes -= sum(len(write.value) for write in batch)
            self._sending = batch
            return batch

    def _take_smallest(self) -> StatusWrite:
        """One is enough to see whether the store is back, and which one does not matter to it."""
        among = range(min(len(self._queue), _BATCH))
        index = min(among, key=lambda n: len(self._queue[n].value))
        write = self._queue[index]
        del self._queue[index]
        return write

    def _send(self, batch: Sequence[StatusWrite]) -> int:
        """Returns how many the store cannot hold at all. Raises StoreUnavailable."""
        try:
            self._store.write(batch)
            return 0
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                log.exception("a status of request %r cannot be written", batch[0].id)
                return 1
            return sum(self._send([write]) for write in batch)

    def _succeeded(self, written: int, lost: int) -> None:
        with self._lock:
            was_open = self._breaker.open
            if was_open:
                self._breaker.succeeded()
            if not self._probing:
                self._doubtful = False
                self._alone = max(0, self._alone - written - lost)
            self._written += written
            self._dropped += lost
            self._sending = ()
            self._changed.notify_all()
        if was_open:
            log.info("the status store is back")

    def _failed(self, batch: list[StatusWrite], error: StoreUnavailable) -> None:
        with self._lock:
            was_open = self._breaker.open
            self._breaker.failed(self._clock())
            self._failures += 1
            self._sending = ()
            left_out = self._left_out(batch)
            if left_out is None and self._closed:
                self._dropped += len(batch)
            elif left_out is None:
                # Back to the front: writing a status twice is harmless.
                self._queue.extendleft(reversed(batch))
                self._bytes += sum(len(write.value) for write in batch)
                self._trim()
            self._changed.notify_all()
        if left_out is not None:
            log.error(
                "a status of request %r (%d bytes) does not get through, others do: left out: %s",
                left_out.id, len(left_out.value), error,
            )  # fmt: skip
        elif not was_open:
            log.warning("statuses wait in a bounded buffer, requests go on: %s", error)

    def _left_out(self, batch: list[StatusWrite]) -> StatusWrite | None:
        """The one to drop, as it has failed alone twice, each time after the store had answered."""
        if self._probing:
            return None
        if len(batch) > 1:
            # The first time the store may have been away, the second time it has answered before.
            self._alone = len(batch) if self._doubtful else 0
            self._doubtful = True
            return None
        suspect, self._suspect = self._suspect, batch[0]
        if suspect is not batch[0]:
            return None
        self._suspect = None
        self._dropped += 1
        self._alone = max(0, self._alone - 1)
        return suspect

    def _trim(self) -> None:
        while len(self._queue) > self._max_queue or self._bytes > self._max_bytes:
            self._bytes -= len(self._queue.popleft().value)
            self._dropped += 1
