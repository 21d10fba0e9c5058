"""Whether a thread is in the middle of a call: who interrupts one finds its locks taken."""

from __future__ import annotations

import threading


class OwnCalls(threading.local):
    """Of one client. A context manager that each call enters; every thread has its own count."""

    count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1
