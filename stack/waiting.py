"""Looking again and again, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Iterator

POLL = 0.02


def pauses(timeout: float, pause: float = POLL) -> Iterator[float]:
    """Yields the seconds that have passed, at once, then after each pause, for `timeout` seconds.

    The last yield comes at or after the end, so a condition is always looked at once more.
    """
    start = time.monotonic()
    while True:
        passed = time.monotonic() - start
        yield passed
        if passed >= timeout:
            return
        time.sleep(pause)
