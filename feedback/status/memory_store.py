"""A status store in memory, for tests of producers and handlers without Redis."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.status.hints import hint_messages
from feedback.status.replacement import replacement
from feedback.status.status import Status, StatusWrite
from feedback.status.store import decode_or_none


class MemoryStatusStore:
    """Keeps to what RedisStatusStore does. `clock` gives seconds; tests move it.

    While `available` is False, every call raises StoreUnavailable, as with Redis away.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.available = True
        self._clock = clock
        self._lock = threading.Lock()
        self._values: dict[str, tuple[bytes, float]] = {}  # id: (value, end of its life)
        self._channels: dict[str, list[_MemoryHints]] = {}

    def write(self, writes: Sequence[StatusWrite]) -> None:
        """Writes each status unless one stands that it must not replace, then sends the hints."""
        with self._lock:
            self._check()
            for write in writes:
                value = replacement(self._value(write.id), write)
                if value is not None:
                    self._values[write.id] = value, self._clock() + max(write.ttl, 1)
            for channel, message in hint_messages(writes).items():
                for hints in self._channels.get(channel, ()):
                    hints.messages.put(message)

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One answer an id, in their order; None where no status stands."""
        return [decode_or_none(value) for value in self.read_raw(ids)]

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        """As read(), but the values as they stand."""
        with self._lock:
            self._check()
            return [self._value(name) for name in ids]

    def drop(self, ids: Sequence[str], before: datetime) -> None:
        """As StatusStore has it."""
        with self._lock:
            self._check()
            for name in ids:
                status = decode_or_none(self._value(name))
                if status and status.at < before and status.state is not State.ACCEPTED:
                    del self._values[name]

    def subscribe(self, channel: str) -> _MemoryHints:
        """Subscribed when it returns, so that no hint sent after that is missed."""
        with self._lock:
            self._check()
            hints = _MemoryHints(self, channel)
            self._channels.setdefault(channel, []).append(hints)
            return hints

    def close(self) -> None:
        """Keeps everything: a store in memory may be shared by several clients."""

    def forget(self) -> None:
        """Loses all statuses, as FLUSHALL does."""
        with self._lock:
            self._values.clear()

    def _unsubscribe(self, hints: _MemoryHints) -> None:
        with self._lock:
            self._channels[hints.channel].remove(hints)

    def _value(self, id: str) -> bytes | None:
        value, end = self._values.get(id, (None, 0.0))
        if value is not None and end <= self._clock():
            del self._values[id]
            return None
        return value

    def _check(self) -> None:
        if not self.available:
            raise StoreUnavailable("this store in memory is set to be away")


class _MemoryHints:
    def __init__(self, store: MemoryStatusStore, channel: str) -> None:
        self.channel = channel
        self.messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._store = store

    def receive(self, timeout: float) -> bytes | None:
        if not self._store.available:
            raise StoreUnavailable("this store in memory is set to be away")
        try:
            return self.messages.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None

    def close(self) -> None:
        self._store._unsubscribe(self)  # noqa: SLF001  (its other half)
