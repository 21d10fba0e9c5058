"""When a missing worker may be started again."""

from __future__ import annotations

from typing import Final, NamedTuple

from feedback.backoff import Backoff

FREE = 3
"""Deaths in a row that cost no delay."""
BASE, CAP = 0.5, 30.0
"""Seconds: the first delay and the longest."""
BLAMED_CAP = 2.0
"""Seconds: the longest delay after a death that a request is to blame for. That one is dead after
its second worker, and the others should not wait for long; but where all of them kill, this leaves
time to see it. They are counted by themselves: they say nothing of whether workers can live.
"""
TOLD_FROM: Final = 2.0
"""Seconds: the shortest pause that is worth a line in the log."""
REFUSED = (
    "{} in a row could not be started, as the system refused it ({}): it is out of processes,"
    " descriptors or memory, or has too low a limit of them"
)
"""Of such processes, with the error: why none can be started."""
QUIET = 30.0
"""Seconds without a death after which the count starts anew."""
MOST_FAILED_STARTS = 5
_PAUSES = Backoff(BASE, CAP)


class _Streak:
    """Deaths of one sort, one after the other."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._last = float("-inf")
        self.deaths = 0

    def died(self, now: float) -> float:
        """One more; returns the seconds that it costs."""
        if now - self._last > QUIET:
            self.deaths = 0
        self.deaths += 1
        self._last = now
        past = self.deaths - FREE
        return min(self._longest, _PAUSES.after(past)) if past > 0 else 0.0


class StartPause(NamedTuple):
    """No worker is started for so many seconds, after so many deaths in a row."""

    seconds: float
    deaths: int


class RestartBackoff:
    """Delays that double while workers die one after the other; no loop where none can start."""

    def __init__(self, died: str) -> None:
        """`died`: what ends as nobody knows why it can't be started, after "5 ..."."""
        self._died = self._why = died
        self._blamed, self._others = _Streak(BLAMED_CAP), _Streak(CAP)
        self._not_before = float("-inf")
        self._untold: StartPause | None = None
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
        """A worker died; `blamed`: of a request."""
        streak = self._blamed if blamed else self._others
        pause = streak.died(now)
        if now + pause > self._not_before:
            self._not_before = now + pause
            self._untold = StartPause(pause, streak.deaths) if pause >= TOLD_FROM else None

    def take_untold(self) -> StartPause | None:
        """The pause that has begun, once, where it is worth telling."""
        pause, self._untold = self._untold, None
        return pause

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
