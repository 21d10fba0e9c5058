"""Shares that the main process was told of and may not have applied yet. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping


class Grants:
    """What the main process may have at once, between what it said last and what it was told.

    A smaller share is not in force before the main process has said so: it may still start what an
    earlier one allowed.
    """

    def __init__(self) -> None:
        self._last = 0
        self._open: deque[tuple[int, dict[str, int]]] = deque()
        """Number, type -> its share; not confirmed."""

    def confirmed(self, number: int) -> None:
        """The main process has applied everything up to this number."""
        # Of a process before this one, where nothing was told yet.
        self._last = max(self._last, number)
        while self._open and self._open[0][0] <= number:
            self._open.popleft()

    def told(self, shares: Mapping[str, int]) -> int:
        """The main process is told of these shares; returns the number that it will confirm."""
        self._last += 1
        self._open.append((self._last, dict(shares)))
        return self._last

    def most(self, said: Mapping[str, int]) -> dict[str, int]:
        """Type -> the most that it may have at once, where it has `said` so much of itself."""
        most = dict(said)
        for _, shares in self._open:
            for kind, share in shares.items():
                most[kind] = max(most.get(kind, 0), share)
        return most
