"""When due rows are claimed. Pure: events and the clock come in, claims go out.

    wanted --------> open --tick: its time has come--> claiming
                      ^                                  |  |
                      +------ nothing was due, failed ---+  +--rows--> nothing wanted

At most one claim at a time, and only while the main process wants rows. It comes at once when they
are wanted, when somebody says that one is due, and at the next due time; else after a pause that
grows to a second, since rows that other instances write announce themselves to those alone.
"""

from __future__ import annotations

import math

from feedback.backoff import Backoff
from feedback.journal.claims import ClaimRequest

SHORTEST = 0.05
LONGEST = 1.0
"""Seconds between two claims that find nothing."""


class ClaimTiming:
    """This process's view of what main wants and when it may be there."""

    def __init__(self, shortest: float = SHORTEST) -> None:
        self._longest = max(shortest, LONGEST)
        self.stopped = False
        """Nothing is claimed any more."""
        self._want: ClaimRequest | None = None
        self._claiming: ClaimRequest | None = None
        self._next = 0.0
        self._pauses = Backoff(shortest, self._longest)
        self._woken = math.inf
        """When a row is due that somebody told of and no claim has looked for yet."""

    # Events

    def wanted(self, want: ClaimRequest, now: float) -> None:
        """The main process wants rows; none with `most` 0. Replaces what it wanted before."""
        self._want = want if want.most > 0 and not self.stopped else None
        self._next = now
        self._pauses.reset()

    def woken(self, now: float, seconds: float = 0.0) -> None:
        """Somebody says that a row is due in so many seconds."""
        at = now + min(max(seconds, 0.0), self._longest)
        self._pauses.reset()
        self._next = min(self._next, at)
        # A claim that is under way may have looked before the row was there.
        self._woken = min(self._woken, at)

    def claimed(self, rows: int, due_in: float | None, now: float) -> bool:
        """The claim is over. `due_in` are the seconds until the next row is due, where it is known.

        False when it is too late for its rows: they are to be given back.
        """
        claiming, self._claiming = self._claiming, None
        if rows:
            self._pauses.reset()
            self._next = now
            if self._want is claiming:
                self._want = None
        else:
            pause = self._pauses.next()
            self._rest(now, pause if due_in is None else min(pause, max(due_in, 0.0)))
        return not self.stopped

    def failed(self, now: float) -> None:
        """The claim failed; what it had claimed, if anything, is given back."""
        self._claiming = None
        self._rest(now, self._longest)

    def stop(self) -> None:
        """Nothing more is to be claimed."""
        self.stopped = True
        self._want = None

    # Actions

    def tick(self, now: float) -> ClaimRequest | None:
        """The claim to make now; `claimed` or `failed` must follow."""
        if self.pause(now) != 0.0:
            return None
        self._claiming = self._want
        if self._woken <= now:
            self._woken = math.inf
        return self._want

    def pause(self, now: float) -> float | None:
        """Seconds until the next claim; None while there is nothing to claim."""
        if self._want is None or self._claiming is not None:
            return None
        # A clock that was set back must not stop the queue.
        self._next = min(self._next, now + self._longest)
        return max(0.0, self._next - now)

    def _rest(self, now: float, pause: float) -> None:
        self._next = min(now + pause, self._woken)
