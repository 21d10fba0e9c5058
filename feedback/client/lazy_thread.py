"""A thread that begins with its first use."""

from __future__ import annotations

import threading
from collections.abc import Callable


class LazyThread:
    """A daemon thread. Where it can't be started it is missing until it is asked for again.

    Whoever starts it does so under a lock of his own.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._name = name
        self._run = run
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether it runs, or did: also where a signal handler kept start() from returning."""
        return self._thread is not None and self._thread.ident is not None

    def start(self) -> None:
        """Starts it, where it was not. Raises RuntimeError where the system has no thread left."""
        if not self.started:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Waits for its end, where it was started."""
        if self._thread is not None and self.started:
            self._thread.join()
