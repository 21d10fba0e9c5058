"""How long work on the database rests that fails though the database is there. Pure.

So none of it keeps the rest waiting: what failed, or lost the connection twice in a row, is not
tried again at once, and meanwhile all other work has its turn.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from feedback.backoff import Breaker

IN_A_ROW: Final = 2
"""Connections that may be lost over one work before it rests: one may be anybody's deed."""
FORGOTTEN: Final = 60.0
"""Seconds after which a loss is not in a row with the one before."""
SAY_EACH: Final = 10
"""Losses in a row after which they are told again."""
_FIRST, _LONGEST = 0.25, 5.0
"""Seconds that it rests after a lost connection: the next thing to do may be another."""
_FIRST_FAILED, _LONGEST_FAILED = 1.0, 30.0
"""The same after a failure of its own."""
_URGENT: Final = 1.0
"""Seconds that urgent work rests at most."""


class WorkRests:
    """What failed, by its name. The clock comes with each call."""

    def __init__(self, urgent: Collection[str] = ()) -> None:
        """`urgent`: work that cannot wait for long, however often it failed."""
        self._urgent = urgent
        self._failures: dict[str, Breaker] = {}
        self._losses: dict[str, Breaker] = {}
        self._lost: dict[str, tuple[int, float]] = {}
        """How often in a row, and when last."""

    def failed(self, name: str, now: float) -> None:
        """It failed, and the connection still stood."""
        self._rest(self._failures, name, now, _FIRST_FAILED, _LONGEST_FAILED)

    def lost(self, name: str, now: float) -> int:
        """It lost the connection; how often in a row by now."""
        before, at = self._lost.get(name, (0, now))
        lost = 1 if now - at > FORGOTTEN else before + 1
        self._lost[name] = lost, now
        if lost >= IN_A_ROW:
            self._rest(self._losses, name, now, _FIRST, _LONGEST)
        return lost

    def _rest(
        self, kept: dict[str, Breaker], name: str, now: float, first: float, longest: float
    ) -> None:
        most = min(longest, _URGENT) if name in self._urgent else longest
        kept.setdefault(name, Breaker(first, most)).failed(now)

    def succeeded(self, name: str) -> None:
        """It went well."""
        for known in (self._failures, self._losses, self._lost):
            known.pop(name, None)

    def clear(self) -> None:
        """The database was away: nobody's failure says anything any more."""
        for known in (self._failures, self._losses, self._lost):
            known.clear()

    def pause(self, name: str, now: float) -> float:
        """Seconds until it is to be tried again; 0 where it did not fail."""
        known = (self._failures.get(name), self._losses.get(name))
        return max((breaker.pause(now) for breaker in known if breaker is not None), default=0.0)


def worth_a_line(lost: int) -> bool:
    """Whether to tell of so many losses in a row."""
    return lost == IN_A_ROW or (lost > 0 and lost % SAY_EACH == 0)
