"""A lock that says when somebody waits for it."""

from __future__ import annotations

import threading


class WatchedLock:
    """`waited_for` is set as soon as somebody finds the lock taken. A context manager."""

    def __init__(self, lock: threading.Lock, waited_for: threading.Event) -> None:
        self._lock = lock
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
