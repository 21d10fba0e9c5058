"""What a chunk shares with the rest of its worker."""

from __future__ import annotations

import threading
from typing import Protocol


class Gate(Protocol):
    """The inbox is one."""

    lock: threading.Lock
    """Guards what may still be recalled, of all chunks of the worker."""

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        """A request of a chunk is about to run, or several (index None). `now` is monotonic."""

    def clear(self) -> None:
        """No request runs any more."""
