"""Partitions that are let go in peace: what becomes of their records that are in hand.

What has not started is given up, and the next owner reads it from the low mark. What has started
may end for a moment, so that nobody starts it a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from consumer.intake.commit import Commit
from consumer.intake.events import Action, Place, SendCommit
from consumer.intake.ports import WorkerPool

MOMENT: Final = 1.0
"""Seconds that what has started may take to end."""
STEP: Final = 0.01


class LettingGo:
    """Revocations, and the end of the membership."""

    def __init__(
        self, pool: WorkerPool, commit: Commit, clock: Callable[[], float], *, read_again: bool
    ) -> None:
        """Without `read_again` nothing is given up: whatever was committed runs here."""
        self._read_again = read_again
        self._pool = pool
        self._commit = commit
        self._clock = clock
        self._places: Sequence[Place] = ()
        self._until: float | None = None
        """All partitions are being let go, and what has started is waited for until then."""

    @property
    def going(self) -> bool:
        """The last commit before the group is left has not been made yet."""
        return self._until is not None

    def now(self, places: Sequence[Place]) -> SendCommit | None:
        """Lets partitions go; returns the commit to make before that. Blocks for a moment.

        Called inside of the client's poll: nothing here may call the client.
        """
        if not self._read_again:
            return None
        self._pool.let_go(places)
        until = self._clock() + MOMENT
        while self._pool.letting_go and self._clock() < until:
            self._pool.step(STEP)
        self._note()
        self._pool.let_go(self._places if self.going else ())
        return self._commit.last_word(places)

    def begin_all(self, places: Sequence[Place]) -> None:
        """The group is about to be left: `tend` says what to do once that may be."""
        if self._read_again:
            self._places, self._until = places, self._clock() + MOMENT
            self._pool.let_go(places)

    def tend(self, now: float) -> list[Action]:
        """Tells the commits what is finished; the last one of them, once that may be made."""
        self._note()
        if self._until is None or self._commit.open_since is not None:
            return []
        if self._pool.letting_go and now < self._until:
            return []
        self.give_up()
        return self._commit.tell_marks(now)

    def give_up(self) -> None:
        """What has not ended by now is left to itself."""
        if self.going:
            self._until = None
            self._pool.let_go(())

    def _note(self) -> None:
        finished, given_up = self._pool.take_departed()
        if finished:
            self._commit.marks.finished(finished)
        if given_up:
            self._commit.marks.given_up(given_up)
