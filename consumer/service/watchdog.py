"""Ends a process whose main thread is stuck, as it may be in a client that waits for its broker."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable


class Watchdog:
    """A thread that ends the process at a time that may come closer."""

    def __init__(self, end: Callable[[], float], code: int) -> None:
        """`end` says when, on the monotonic clock; it is asked again and again."""
        self._end = end
        self._code = code
        self._done = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def dismiss(self) -> None:
        """The main thread got through."""
        self._done.set()

    def _watch(self) -> None:
        while (left := self._end() - time.monotonic()) > 0:
            if self._done.wait(min(left, 0.5)):
                return
        print("oncepool: the shutdown is stuck, ending the process", file=sys.stderr, flush=True)  # noqa: T201 - the log's lock may be what is stuck
        # Workers and the clerk are tied to this process: they end with it.
        os._exit(self._code)
