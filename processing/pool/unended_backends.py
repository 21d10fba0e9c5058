"""Database sessions of dead workers that do not end: only what belongs to them waits. Pure.

A session may commit as long as it is there, so its requests cannot be looked up. One of them at a
time is tried now and then, which shows whether the session has ended; all others run meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from processing.ipc.frames import Backend, Suspect
from processing.pool.actions import Action, Unended
from processing.pool.kept_back import KeptBack

LOOK_AGAIN: Final = 5.0
"""Seconds between two tries of what waits for a session."""
SAY_AGAIN: Final = 60.0
"""Seconds between two log lines about one session."""
MOST_REMEMBERED: Final = 1000
"""Sessions of which is known whose they were."""


class UnendedBackends:
    """What workers say of them, and when to try again."""

    def __init__(self, kept_back: KeptBack) -> None:
        self._kept_back = kept_back
        self._workers: dict[Backend, int] = {}
        """Whose they were."""
        self._said: dict[Backend, float] = {}
        self._look_at: float | None = None
        """When to try again; None where nothing waits, or nobody has looked at the clock since."""

    def left_by(self, worker: int, backends: Sequence[Backend]) -> None:
        """A worker died with work in hand; these were its sessions."""
        self._workers.update(dict.fromkeys(backends, worker))
        while len(self._workers) > MOST_REMEMBERED:
            del self._workers[next(iter(self._workers))]  # the oldest

    def looked_up(self, suspect: Suspect, unended: Sequence[Backend]) -> None:
        """A suspect was looked up, or could not be for sessions that do not end."""
        kept_back, gone = self._kept_back, set(suspect.backends).difference(unended)
        if unended:
            kept_back.wait_for(unended)
        if not gone.isdisjoint(kept_back.unended):
            kept_back.gone(gone)

    def tend(self, now: float) -> list[Action]:
        """Has some of what waits tried again, where it is time; what to tell of it."""
        if not self._kept_back.unended:
            self._look_at = None
            return []
        if self._look_at is None:
            self._look_at = now + LOOK_AGAIN
        elif now >= self._look_at:
            self._look_at = now + LOOK_AGAIN
            self._kept_back.try_again()
        return self._news(now)

    def _news(self, now: float) -> list[Action]:
        unended = self._kept_back.unended
        self._said = {backend: at for backend, at in self._said.items() if backend in unended}
        new = [b for b in unended if now >= self._said.get(b, float("-inf")) + SAY_AGAIN]
        self._said.update(dict.fromkeys(new, now))
        return [Unended(b, self._workers.get(b), self._kept_back.waiting_for(b)) for b in new]
