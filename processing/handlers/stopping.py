"""The flag that tells handlers of this process to come to an end."""

from __future__ import annotations

import threading
from contextlib import suppress


class Stopping:
    """A flag that a signal handler may set while the same thread waits for it.

    `threading.Event` cannot be used: its `set` takes a lock that the interrupted `wait` may hold.
    Here the lock itself is the signal: it is held until `set` releases it, which needs no lock.
    """

    __slots__ = ("_gate", "cancelled", "leaving", "told")

    def __init__(self) -> None:
        self.told = False
        """Whether somebody told; to be read only."""
        self._gate = _closed_gate()
        self.cancelled: str | None = None
        """Who cancelled the request that runs, and why; None where nobody did."""
        self.leaving = False
        """The process itself is to end, and may be killed soon."""

    def set(self) -> None:
        """Tell everybody; again and again does no harm."""
        if not self.told:
            self.told = True
            with suppress(RuntimeError):  # a second signal came between the two lines
                self._gate.release()

    def is_set(self) -> bool:
        """Whether somebody told."""
        return self.told

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; True once the flag is set."""
        if not self.told and self._gate.acquire(timeout=max(0.0, timeout)):
            self._gate.release()  # the next one who waits gets through as well
        return self.told

    def clear(self) -> None:
        """Back to the start, for tests: nobody may wait meanwhile."""
        self._gate = _closed_gate()
        self.told = self.leaving = False
        self.cancelled = None


def _closed_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()  # nobody holds it as an owner: any thread may open it
    return gate


STOPPING = Stopping()
"""The flag of this process: set by the worker, read by `Request.stopping`."""
