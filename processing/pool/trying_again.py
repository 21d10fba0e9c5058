"""When what is kept back is tried again. Pure.

Only what belongs to it waits, and all others run meanwhile. A session of a dead worker that does
not end may commit as long as it is there, so its requests cannot be looked up. One of them at a
time is tried now and then, which shows whether the session has ended. What the database refuses to
look up though it works (a right that was taken away, a broken page) is tried after pauses that
grow. What is read again while whoever had it before is at it yet is looked at every two seconds,
more rarely where there are hundreds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

from feedback.backend import Backend
from feedback.backoff import Backoff
from feedback.contract.record import TOPIC, Record
from processing.ipc.frames import Suspect
from processing.pool.actions import Action, Unended
from processing.pool.kept_back import KeptBack
from processing.stuck_sessions import SAY_AGAIN

LOOK_AGAIN: Final = 5.0
"""Seconds between two tries of what waits for a session."""
LOOK_ELSEWHERE, EACH_LOOK = 2.0, 0.02
"""Seconds between two tries of what others may be at; where they are many, so long for each."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two tries of what the database refuses."""
MOST_REMEMBERED: Final = 1000
"""Sessions of which is known whose they were."""
SHARE: Final = 4
"""Of the bound one in so many may be a message that stands behind suspects; more are parked."""
GIVE_BACK_EVERY: Final = 10.0
"""Seconds after which claimed rows that stand there are given back: another instance may run them,
and this one claims them again where none does."""


class TryingAgain:
    """What workers say of them, and when to try again."""

    def __init__(self, kept_back: KeptBack, max_in_hand: int) -> None:
        self._kept_back = kept_back
        self._most = max_in_hand // SHARE
        self._give_back_at: float | None = None
        """When claimed rows that stand there are given back; None where nothing waits."""
        self._workers: dict[Backend, int] = {}
        """Whose they were."""
        self._said: dict[Backend, float] = {}
        self._look_at: float | None = None
        """When to try again; None where nothing waits, or nobody has looked at the clock since."""
        self._pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._ask_at: float | None = None
        """The same for what the database refuses."""
        self._elsewhere_at: float | None = None
        """And for what others may be at."""

    def left_by(self, worker: int, backends: Sequence[Backend]) -> None:
        """A worker died with work in hand; these were its sessions."""
        self._workers.update(dict.fromkeys(backends, worker))
        while len(self._workers) > MOST_REMEMBERED:
            del self._workers[next(iter(self._workers))]  # the oldest

    def looked_up(
        self, suspect: Suspect, unended: Sequence[Backend] | None, *, refused: bool
    ) -> None:
        """A suspect was looked up, or could not be: sessions do not end, or that was `refused`.

        None: it had no need of it, so nobody knows of its sessions; the next one is tried at once.
        Or nobody could ask for them.
        """
        kept_back = self._kept_back
        if refused:
            kept_back.wait_for_look_ups()
        elif suspect.refused and not unended:
            kept_back.look_ups_work()
            self._pauses.reset()
        if unended is None:
            if not (refused or kept_back.unended.isdisjoint(suspect.backends)):
                self._look_at = float("-inf")
            return
        gone = set(suspect.backends).difference(unended)
        if unended:
            kept_back.wait_for(unended)
        if not gone.isdisjoint(kept_back.unended):
            kept_back.gone(gone)

    def tend(self, now: float) -> list[Action]:
        """Has some of what waits tried again, where it is time; what to tell of it."""
        kept_back = self._kept_back
        if not (kept_back.unended or kept_back.refusing or kept_back.elsewhere):
            self._look_at = self._ask_at = self._elsewhere_at = self._give_back_at = None
            return []
        if self._give_back_at is None:
            self._give_back_at = now + GIVE_BACK_EVERY
        self._tend_refused(now)
        self._tend_elsewhere(now)
        if not kept_back.unended:
            self._look_at = None
            return []
        if self._look_at is None:
            self._look_at = now + LOOK_AGAIN
        elif now >= self._look_at:
            self._look_at = now + LOOK_AGAIN
            kept_back.try_again()
        return self._news(now)

    def _tend_refused(self, now: float) -> None:
        if not self._kept_back.refusing:
            self._ask_at = None
        elif self._ask_at is None:
            self._ask_at = now + self._pauses.next()
        elif now >= self._ask_at:
            self._ask_at = now + self._pauses.next()
            self._kept_back.try_look_ups()

    def _tend_elsewhere(self, now: float) -> None:
        if not self._kept_back.elsewhere:
            self._elsewhere_at = None
        elif self._elsewhere_at is None:
            self._elsewhere_at = now + LOOK_ELSEWHERE
        elif now >= self._elsewhere_at:
            tried = self._kept_back.try_elsewhere()
            self._elsewhere_at = now + max(LOOK_ELSEWHERE, EACH_LOOK * tried)

    def may_exceed(self, now: float) -> bool:
        """Whether `excess` says anything."""
        kept = self._kept_back.now
        late = self._give_back_at is not None and now >= self._give_back_at
        return kept.messages_behind > self._most or (kept.due_behind > 0 and late)

    def excess(self, now: float, decoded: Collection[str] = ()) -> list[Record]:
        """What stands behind those, never went to a worker, and is not to wait for them here.

        Messages that would fill the bound, down to half of what may stand there, and claimed rows.
        Those of the topics `decoded` only user code can read: they cannot wait anywhere else.
        """
        if not self.may_exceed(now):
            return []
        records: list[Record] = []
        if (messages := self._kept_back.now.messages_behind) > self._most:
            many = messages - self._most // 2
            some = islice(self._kept_back.behind(due=False), many)
            records += (record for record in some if record[TOPIC] not in decoded)
        if self._give_back_at is not None and now >= self._give_back_at:
            self._give_back_at = now + GIVE_BACK_EVERY
            records += self._kept_back.behind(due=True)
        return records

    def _news(self, now: float) -> list[Action]:
        unended = self._kept_back.unended
        self._said = {backend: at for backend, at in self._said.items() if backend in unended}
        new = [b for b in unended if now >= self._said.get(b, float("-inf")) + SAY_AGAIN]
        self._said.update(dict.fromkeys(new, now))
        return [Unended(b, self._workers.get(b), self._kept_back.waiting_for(b)) for b in new]
