"""What wakes a thread that may be the main one."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue


class Bell:
    """Wakes one thread at a time, whichever waits; a signal handler that raises leaves no lock.

    threading.Event does: Condition.__enter__() is Python code, which may be interrupted when it
    has the lock and `with` does not know of it yet (CPython issues 74174 and 148874). Every other
    thread that rings or waits then stands still for good. Entering a plain Lock or RLock is one
    call in C, as all here is: so `with` a Condition's own lock, never the Condition.
    """

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Something happened. From any thread; rung often, it wakes once."""
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, timeout: float) -> None:
        """Returns when it has rung since the last wait, or after `timeout` seconds.

        At times it rings twice: whoever waits looks whether something has happened.
        """
        with suppress(Empty):
            self._rung.get(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))
