"""Whether a thread is in the middle of a call: who interrupts one finds its locks taken."""

from __future__ import annotations

import threading


class OwnCalls(threading.local):
    """Of one client. Every thread has its own, and learns nothing of others'."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held by each call, for as long as it takes; no other thread asks for it.

        A lock because it is entered and left within the interpreter: a signal handler that raises
        can't come in between, and leave it held for good.
        """

    @property
    def running(self) -> bool:
        """Whether this thread is in one."""
        return self.lock._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001 - conditions ask it
