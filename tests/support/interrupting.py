"""What a signal handler does in the main thread, in the middle of what that waits for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LATE = 60.0
AGAIN = 0.05


@contextmanager
def interrupting(act: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """What is yielded, called in another thread, returns when a handler has acted.

    What the handler raises comes out of what the main thread waits for. The signal is sent until it
    acts: one that comes just before the main thread waits for a lock does not end that wait.
    """
    main = threading.main_thread().ident
    assert main is not None
    heard = threading.Event()
    acted = threading.Event()

    def handle(*_: object) -> None:
        if heard.is_set():
            return
        heard.set()
        try:
            act()
        finally:
            acted.set()

    def interrupt() -> None:
        for _ in range(round(LATE / AGAIN)):
            signal.pthread_kill(main, signal.SIGUSR1)
            if heard.wait(AGAIN):
                break
        assert acted.wait(LATE)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGUSR1, before)
