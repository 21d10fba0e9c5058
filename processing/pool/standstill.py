"""Whether anything starts here: rows of the waiting queue are for those who start them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from processing.pool.calls import CALLS, CHUNKS, SeatedCalls
from processing.pool.chunk import Chunk
from processing.pool.demand import PATIENCE
from processing.pool.workers import Workers

ROWS_FIRST: Final = 1.0
"""Seconds at most that what comes free is kept for rows that were given back."""


class Standstill:
    """No worker reaches the database, or for long none had room for, or was done with, some work.

    It is asked of calls and of what goes in chunks, as one may go on where the other can't. Then
    due rows that are such work are others' to run: none are wanted, and those that wait are given
    back. Others may be as busy: where some were given back, what comes free first waits for a
    moment for rows. Else another long run would begin there before any could be claimed, and so for
    ever.
    """

    def __init__(self, crew: Workers, calls: SeatedCalls) -> None:
        self._crew = crew
        self._calls = calls
        self._since: dict[str, float] = {}
        """Work -> when some came to its end last, or could start."""
        self._ended: set[str] = set()
        """Work of which some came to its end since it was looked."""
        self.holds: frozenset[str] = frozenset()
        """The work of which none starts, as it was looked last."""
        self._gave_back: set[str] = set()
        self._rows_until: dict[str, float] = {}

    @property
    def work(self) -> set[str]:
        """All that there may be."""
        return {CHUNKS, CALLS} if self._calls.at_once else {CHUNKS}

    def ended(self, chunk: Chunk) -> None:
        """A worker is done with it, and what waits behind it may start."""
        self._ended.add(CHUNKS if chunk.seat is None else CALLS)

    def gave_back(self, kinds: Iterable[str]) -> None:
        """Rows of these types went back while it holds."""
        self._gave_back.update(map(self._calls.work_of, kinds))
        self._calls.chunks_gave_back = CHUNKS in self._gave_back

    def rows_came(self, kinds: Iterable[str]) -> None:
        """They share what is free with all that waits."""
        for kind in kinds:
            self._rows_until.pop(self._calls.work_of(kind), None)

    def rows_first(self, now: float) -> Collection[str]:
        """Work for which what is free is kept for rows that are claimed meanwhile."""
        if self.holds:
            self.look(now)
        if self._rows_until:
            self._rows_until = {w: end for w, end in self._rows_until.items() if now < end}
        return self._rows_until.keys()

    def look(self, now: float) -> frozenset[str]:
        """The work of which it holds now."""
        moves = self._ended | self._calls.may_start(self._ended)
        self._ended.clear()
        since = self._since
        self._since = {w: now if w in moves else since.get(w, now) for w in self.work}
        held, cut_off = self.holds, self._crew.cut_off
        stands = (w for w, at in self._since.items() if cut_off or now - at >= PATIENCE)
        self.holds = frozenset(stands)
        if over := self._gave_back & held - self.holds:
            self._gave_back -= over
            self._rows_until.update(dict.fromkeys(over, now + ROWS_FIRST))
            self._calls.chunks_gave_back = CHUNKS in self._gave_back
        return self.holds
