"""How a client reads statuses: all its waits, served by one hint channel and one sweep.

A hint only says where to look; what stands in the store is the answer. The sweep finds what no
hint told.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from feedback.backoff import Breaker
from feedback.bell import Bell
from feedback.client.lazy_thread import LazyThread
from feedback.client.poll_schedule import PollSchedule
from feedback.errors import StoreUnavailable
from feedback.status.hints import hinted_ids
from feedback.status.status import Status
from feedback.status.store import StatusStore, decode_or_none

log = logging.getLogger("oncepool.client")

_FIRST_PAUSE: Final = 0.05  # while the store is away
_LONGEST_PAUSE: Final = 1.0
_LISTEN: Final = 0.1  # how long the listener takes to see that the client is closed


class Watch(ABC):
    """One wait for one id."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.status: Status | None = None  # the last one seen; set by the sweeper only
        self.raw: bytes | None = None  # the same as it stood; set by the sweeper only

    @abstractmethod
    def wake(self) -> None:
        """Something happened: a new status, a delivery that failed, or the client was closed.

        Called in any thread.
        """


class ThreadWatch(Watch):
    """A wait of a thread."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._news = Bell()

    def wake(self) -> None:
        self._news.ring()

    def wait(self, timeout: float) -> None:
        """Returns when something has happened since the last wait, or after `timeout` seconds."""
        self._news.wait(timeout)


WatchT = TypeVar("WatchT", bound=Watch)


class StatusWaiter:
    """The waits, the thread that sweeps for them and the thread that listens to hints.

    `channel` is None where no hints are wanted. Both threads start with the first use.
    """

    def __init__(
        self,
        store: StatusStore,
        channel: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self.listening = channel is None
        """Whether listen() has nothing to wait for: a subscription has succeeded, or failed."""
        self._subscribed = Bell()  # rung when it has
        self._lock = threading.RLock()  # entered itself, never by way of _changed: see Bell
        self._changed = threading.Condition(self._lock)
        # All below is guarded by _lock; `closed` is read without it.
        self.closed = False
        self._watches: dict[str, list[weakref.ref[Watch]]] = {}
        self._schedule = PollSchedule()
        self._breaker = Breaker(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._threads = [LazyThread("waits", self._sweep)]
        if channel is not None:
            self._threads.append(LazyThread("hints", partial(self._listen, channel)))

    def listen(self, timeout: float = 1.0) -> None:
        """Returns when hints arrive; also when they can't: then the sweep does it all."""
        if not self.listening:
            self._start()
            self._subscribed.wait(timeout)
            self._listens()  # nobody waits twice; and the next one wakes

    def watch(self, id: str) -> ThreadWatch:
        """Begins a wait of a thread; end it with unwatch()."""
        return self.begin(ThreadWatch(id))

    def begin(self, watch: WatchT) -> WatchT:
        """Begins a wait; end it with unwatch()."""
        watch.id.encode()  # what is no valid text raises here, not in the sweeper
        self._start()
        with self._lock:
            self._schedule.started(watch.id, self._clock())  # first, so that a sweep forgets it
            self._watches.setdefault(watch.id, []).append(weakref.ref(watch))
            self._changed.notify_all()
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Ends a wait. One that a signal handler ends on its way here ends when it is freed."""
        with self._lock:
            others = [one for one in self._waiting(watch.id) if one is not watch]
            self._watches[watch.id] = [weakref.ref(one) for one in others]
            self._forget_ended([watch.id])

    def wake(self, id: str) -> None:
        """Wakes the waits for an id, as something else than its status has changed."""
        with self._lock:
            for watch in self._waiting(id):
                watch.wake()

    def close(self) -> None:
        """Wakes every wait and ends both threads."""
        with self._lock:
            self.closed = True
            for name in self._watches:
                for watch in self._waiting(name):
                    watch.wake()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _waiting(self, id: str) -> list[Watch]:
        return [watch for one in self._watches.get(id, ()) if (watch := one()) is not None]

    def _forget_ended(self, ids: Iterable[str]) -> None:
        for name in ids:
            if not self._waiting(name):
                self._watches.pop(name, None)
                self._schedule.ended(name)

    def _start(self) -> None:
        with self._lock:
            if not self.closed:
                for thread in self._threads:
                    thread.start()

    def _listens(self) -> None:
        self.listening = True
        self._subscribed.ring()

    # The sweeper's thread.

    def _sweep(self) -> None:
        while ids := self._take():
            start = self._clock()
            try:
                values = self._store.read_raw(ids)
                self._seen(ids, values, self._clock() - start)
            except Exception as error:  # noqa: BLE001 - without this thread no wait had an answer
                self._unavailable(error)

    def _take(self) -> list[str]:
        """The ids to read now; waits until there are some. Empty when closed."""
        with self._lock:
            while not self.closed:
                now = self._clock()
                pause = self._breaker.pause(now)
                if not pause:
                    ids = self._schedule.take(now)
                    if ids:
                        self._forget_ended(ids)
                        return ids
                self._changed.wait(pause or self._schedule.pause(now))
            return []

    def _seen(self, ids: list[str], values: Iterable[bytes | None], seconds: float) -> None:
        with self._lock:
            self._breaker.succeeded()
            self._schedule.done(self._clock(), seconds)
            # A status that is gone (its time has run out, Redis was emptied) is no news.
            news = [
                (watch, raw)
                for name, raw in zip(ids, values, strict=True)
                if raw is not None
                for watch in self._waiting(name)
                if raw != watch.raw
            ]
        # Without the lock: a result may be large, and whoever begins a wait must not stand still.
        for watch, raw in news:
            watch.raw = raw
            watch.status = decode_or_none(raw)
            watch.wake()

    def _unavailable(self, error: Exception) -> None:
        with self._lock:
            if not self._breaker.open:
                bug = None if isinstance(error, StoreUnavailable) else error
                log.warning("waits go on without statuses: %s", error, exc_info=bug)
            self._breaker.failed(self._clock())
            self._schedule.failed()

    # The listener's thread.

    def _listen(self, channel: str) -> None:
        breaker = Breaker(_FIRST_PAUSE, _LONGEST_PAUSE)
        while not self.closed:
            try:
                self._receive(channel, breaker)
            except Exception as error:
                if not isinstance(error, StoreUnavailable):
                    log.warning("waits go on without hints: %s", error, exc_info=error)
                breaker.failed(self._clock())
                self._listens()
                pause = breaker.pause(self._clock())
                with self._lock:
                    self._changed.wait_for(lambda: self.closed, timeout=pause)

    def _receive(self, channel: str, breaker: Breaker) -> None:
        """Receives hints until closed. Raises StoreUnavailable when the subscription breaks."""
        hints = self._store.subscribe(channel)
        try:
            breaker.succeeded()
            self._listens()
            with self._lock:
                self._schedule.missed_hints()
                self._changed.notify_all()
            while not self.closed:
                message = hints.receive(_LISTEN)
                if message is not None:
                    with self._lock:
                        self._schedule.hinted(hinted_ids(message))
                        self._changed.notify_all()
        finally:
            hints.close()


class CautiousReader:
    """Reads statuses; after a failure it raises at once until the breaker's pause is over."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._breaker = Breaker()  # guarded by _lock

    def read(self, id: str) -> Status | None:
        """The status that stands; None where there is none. Raises StoreUnavailable."""
        return self.read_all([id])[0]

    def read_all(self, ids: Sequence[str]) -> list[Status | None]:
        """As read(), one answer an id, in their order."""
        began = time.monotonic()
        with self._lock:
            if self._breaker.pause(began):
                raise StoreUnavailable("statuses could not be read a moment ago")
        try:
            statuses = self._store.read(ids)
        except StoreUnavailable:
            with self._lock:
                self._breaker.failed(time.monotonic(), began)
            raise
        with self._lock:
            self._breaker.succeeded()
        return statuses
