"""Ends a process whose main thread is stuck, as it may be in a client that waits for its broker."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

from processing.ipc.standard_streams import say_at_once

LOOK_EVERY = 0.5
NEVER = float("inf")


class Watchdog:
    """A thread that ends the process: at a time that may come closer, or when signals go unheard.

    `end` says when, on the monotonic clock, `code` with which exit code; both are asked again and
    again. `signals` is a descriptor that is readable while signals came that the main thread has
    not taken; it may stay so for `patience` seconds.
    """

    def __init__(
        self,
        end: Callable[[], float],
        code: Callable[[], int],
        signals: int,
        patience: float,
    ) -> None:
        self._end = end
        self._code = code
        self._signals = signals
        self._patience = patience
        self._unheard_since: float | None = None
        self._done = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def dismiss(self) -> None:
        """The main thread got through."""
        self._done.set()

    def _watch(self) -> None:
        while (left := self._deadline(time.monotonic()) - time.monotonic()) > 0:
            if self._done.wait(min(left, LOOK_EVERY)):
                return
        # Not through the log, nor through sys.stderr: their locks may be what is stuck.
        say_at_once("oncepool: the main thread is stuck, ending the process")
        # The children are tied to this process: they end with it.
        os._exit(self._code())

    def _deadline(self, now: float) -> float:
        unheard, _, _ = select.select([self._signals], [], [], 0)
        if not unheard:
            self._unheard_since = None
        elif self._unheard_since is None:
            self._unheard_since = now
        heard_by = NEVER if self._unheard_since is None else self._unheard_since + self._patience
        return min(self._end(), heard_by)
