"""A thread that begins with its first use."""

from __future__ import annotations

import threading
from collections.abc import Callable


class LazyThread:
    """A daemon thread. Where it can't be started it is missing until it is asked for again.

    Whoever starts it does so under a lock of his own. A signal handler that raises out of
    Thread.start() may leave a thread that runs, one that stands still in its own start for good
    (see Bell), or none; Thread.ident is the same of all. So only what runs says that it does, and
    of two that were started one runs.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._name = name
        self._run = run
        self.started = False
        """Whether it runs, or did, or surely will."""
        self._first = threading.Lock()  # taken by the thread that runs, and never given back
        self._over = threading.Lock()  # given back when that has run
        self._over.acquire()
        self._thread: threading.Thread | None = None  # that one

    def start(self) -> None:
        """Starts it, where it was not. Raises RuntimeError where the system has no thread left."""
        if not self.started:
            threading.Thread(target=self._body, name=self._name, daemon=True).start()
            self.started = True

    def join(self) -> None:
        """Waits for its end, where it was started; who was interrupted in it may wait again.

        Raises RuntimeError in that thread itself.
        """
        if self._thread is threading.current_thread():
            raise RuntimeError("cannot join current thread")
        if self.started:
            with self._over:  # Thread.join() that was interrupted takes the thread for ended
                pass
        if self._thread is not None:
            self._thread.join()

    def _body(self) -> None:
        self.started = True
        if self._first.acquire(blocking=False):
            self._thread = threading.current_thread()
            try:
                self._run()
            finally:
                self._over.release()
