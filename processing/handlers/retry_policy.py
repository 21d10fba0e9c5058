"""How often a failed request runs, and how long it waits between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from processing.handlers.errors import RegistrationError
from processing.handlers.validation import Rule, keep_rules, number, whole

CAP = float("300")
"""The cap where none is given: itself, not one that equals it, as no literal is this object."""


def _exceptions(given: Any) -> Any:
    """A list as a tuple: `except` and isinstance() take no list; the empty one is refused."""
    kinds = tuple(given) if isinstance(given, list) and given else given
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError
    return kinds


_RULES = {
    "attempts": Rule(whole(1), "a whole number of runs, at least 1"),
    "base": Rule(number(above=0), "a number above 0"),
    "factor": Rule(number(least=1), "a number at least 1"),
    "cap": Rule(number(above=0), "a number above 0"),
    "jitter": Rule(number(least=0, most=1), "a number at least 0 and at most 1"),
    "on": Rule(
        _exceptions, "an exception class, or a tuple or list of them, as on=(TimeoutError, OSError)"
    ),
}


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request runs and how long it waits between.

    Seconds before run n + 1 are base * factor ** (n - 1), at most cap. Raises RegistrationError.
    """

    attempts: int = 1
    """Runs in all, the first one counted; 1: never again."""
    base: float = 1.0
    """Seconds before the second run."""
    factor: float = 2.0
    """By what each pause is longer than the one before."""
    cap: float = CAP
    """Seconds of the longest pause; at least `base`, also where it is left out."""
    jitter: float = 0.2
    """Share of a pause that is drawn at random, 0 to 1."""
    on: type[BaseException] | tuple[type[BaseException], ...] = (Exception,)
    """Exceptions that are worth another run; others end it at once."""

    def __post_init__(self) -> None:
        left_out = self.cap is CAP
        keep_rules(self, _RULES, "RetryPolicy")
        if left_out and self.cap < self.base:
            object.__setattr__(self, "cap", self.base)
        if self.cap < self.base:
            raise RegistrationError(
                f"RetryPolicy(cap={self.cap:g}): a number at least {self.base:g}, its base"
            )

    @classmethod
    def of(cls, retries: int | RetryPolicy) -> RetryPolicy:
        """`retries=N` as a policy: N + 1 runs."""
        return retries if isinstance(retries, RetryPolicy) else RetryPolicy(attempts=retries + 1)

    def pause(self, used: int, draw: Callable[[], float]) -> float:
        """Seconds from the end of attempt number `used` to the next; `draw` gives 0 to 1."""
        try:
            longest = min(self.cap, self.base * self.factor ** (used - 1))
        except OverflowError:
            longest = self.cap
        return longest * (1 - self.jitter * draw())
