"""What wakes a thread that may be the main one."""

from __future__ import annotations

import threading
from contextlib import suppress


class Bell:
    """Wakes one thread at a time, whichever waits; a signal handler that raises leaves no lock.

    threading.Event does: Condition.__enter__() is Python code, which may be interrupted when it
    has the lock and `with` does not know of it yet (CPython issues 74174 and 148874). Every other
    thread that rings or waits then stands still for good. Entering a plain Lock or RLock is one
    call in C, as all here is: so `with` a Condition's own lock, never the Condition.

    Nor does it wait with a queue: before Python 3.13 SimpleQueue.get(timeout=...) has no end where
    a signal handler returns when the time is over.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()  # held unless it has rung
        self._silent.acquire()

    def ring(self) -> None:
        """Something happened. From any thread; rung often, it wakes once."""
        with suppress(RuntimeError):  # it has rung already
            self._silent.release()

    def wait(self, timeout: float) -> None:
        """Returns when it has rung since the last wait, or after `timeout` seconds.

        At times it rings twice: whoever waits looks whether something has happened.
        """
        self._silent.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))
