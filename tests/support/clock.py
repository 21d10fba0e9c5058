"""A clock that stands still until a test sets it."""

from __future__ import annotations


class Clock:
    """Says `now`, in seconds."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
