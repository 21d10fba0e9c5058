"""Partitions that are let go in peace: what becomes of their records that are in hand.

What has not started is given up, and the next owner reads it from the low mark. What has started
may end for a moment, so that nobody starts it a second time. What no mark tells any more stays: a
last commit may be lost, and then nobody else would read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        self._places: Mapping[Place, int] = {}
        """Those that are let go at the end, and from which offset on."""
        self.going = False
        """All partitions are being let go: the last commit before that has not been made yet."""
        self._until = 0.0
        """What has started is waited for until then."""

    def now(self, places: Sequence[Place]) -> SendCommit | None:
        """Lets partitions go; returns the commit to make before that. Blocks for a moment.

        Called inside of the client's poll: nothing here may call the client.
        """
        if not self._read_again:
            return None
        self._give_up(places)
        return self._commit.last_word(places)

    def lost(self, places: Sequence[Place]) -> None:
        """Lets partitions go of which nothing more can be said. Blocks for a moment."""
        if self._read_again:
            self._give_up(places)

    def _give_up(self, places: Sequence[Place]) -> None:
        self._pool.let_go(self._commit.marks.read_from(places))
        until = self._clock() + MOMENT
        while self._pool.letting_go and self._clock() < until:
            self._pool.step(STEP)
        self._commit.marks.departed(*self._pool.take_departed())
        self._pool.let_go(self._places if self.going else {})

    def begin_all(self, places: Sequence[Place]) -> None:
        """The group is about to be left: `tend` says what to do once that may be."""
        if self._read_again:
            self.going = True
            self._places = self._commit.marks.read_from(places)
            self._until = self._clock() + MOMENT
            self._pool.let_go(self._places)

    def tend(self, now: float) -> list[Action]:
        """While going: the last commit, once that may be made."""
        if self._commit.open_since is not None:
            return []
        # What an answer of this turn has delivered has to be given up, too.
        self._pool.step(0.0)
        self._commit.marks.departed(*self._pool.take_departed())
        if self._pool.letting_go and now < self._until:
            return []
        self.give_up()
        return self._commit.tell_marks(now)

    def give_up(self) -> None:
        """What has not ended by now is left to itself."""
        if self.going:
            self.going = False
            self._pool.let_go({})
