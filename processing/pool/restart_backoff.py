"""When a missing worker may be started again."""

from __future__ import annotations

from feedback.backoff import Backoff

FREE = 3
"""Deaths in a row that cost no delay."""
BASE, CAP = 0.5, 30.0
"""Seconds: the first delay and the longest."""
BLAMED_CAP = 2.0
"""Seconds: the longest delay after a death that a request is to blame for. That one is dead after
its second worker, and the others should not wait for long; but where all of them kill, this leaves
time to see it.
"""
REFUSED = (
    "{} in a row could not be started, as the system refused it ({}): it is out of processes,"
    " descriptors or memory, or has too low a limit of them"
)
"""Of such processes, with the error: why none can be started."""
QUIET = 30.0
"""Seconds without a death after which the count starts anew."""
MOST_FAILED_STARTS = 5
_PAUSES = Backoff(BASE, CAP)


class RestartBackoff:
    """Delays that double while workers die one after the other; no loop where none can start."""

    def __init__(self, died: str) -> None:
        """`died`: what ends as nobody knows why it can't be started, after "5 ..."."""
        self._died = self._why = died
        self._deaths = 0
        self._last = float("-inf")
        self._not_before = float("-inf")
        self._failed_starts = 0
        self.started_once = False
        """One has started well since the beginning."""

    def may(self, now: float) -> bool:
        """Whether a worker may be started now."""
        return now >= self._not_before

    def ready(self) -> None:
        """A worker has started well."""
        self._failed_starts = 0
        self.started_once = True

    def died(self, now: float, *, blamed: bool = False) -> None:
        """A worker died; `blamed`: it is known of which request."""
        if now - self._last > QUIET:
            self._deaths = 0
        self._deaths += 1
        self._last = now
        if self._deaths > FREE:
            longest = BLAMED_CAP if blamed else CAP
            self._not_before = now + min(longest, _PAUSES.after(self._deaths - FREE))

    def failed(self, now: float, why: str | None = None) -> None:
        """A worker died before it was ready; `why`: as `died`, where more is known."""
        self._failed_starts += 1
        self._why = why or self._died
        self.died(now)

    @property
    def failing(self) -> bool:
        """The last start failed."""
        return self._failed_starts > 0

    @property
    def hopeless(self) -> str | None:
        """Why no worker can be started, or None while there is hope."""
        if self.started_once or self._failed_starts < MOST_FAILED_STARTS:
            return None
        return f"{self._failed_starts} {self._why}"
