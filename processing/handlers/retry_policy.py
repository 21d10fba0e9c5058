"""How often a failed request runs, and how long it waits between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from processing.handlers.errors import RegistrationError
from processing.handlers.validation import check_fields, checked, number, whole


class _LeftOut(float):
    """The cap of a policy that names none."""


CAP = 300.0


def _exceptions(given: Any) -> Any:
    """A list as a tuple: `except` and isinstance() take no list; the empty one is refused."""
    if isinstance(given, list) and given:
        given = tuple(given)
    for one in given if isinstance(given, tuple) else (given,):
        if not issubclass(one, BaseException):
            raise TypeError
    return given


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request runs and how long it waits between.

    Seconds before run n + 1 are base * factor ** (n - 1), at most cap. Raises RegistrationError.
    """

    attempts: int = checked(1, whole(1), "a whole number of runs, at least 1")
    """Runs in all, the first one counted; 1: never again."""
    base: float = checked(1.0, number(above=0), "a number above 0")
    """Seconds before the second run."""
    factor: float = checked(2.0, number(least=1), "a number at least 1")
    """By what each pause is longer than the one before."""
    cap: float = checked(_LeftOut(CAP), number(above=0), "a number above 0")
    """Seconds of the longest pause; at least `base`, also where it is left out."""
    jitter: float = checked(0.2, number(least=0, most=1), "a number at least 0 and at most 1")
    """Share of a pause that is drawn at random, 0 to 1."""
    on: type[BaseException] | tuple[type[BaseException], ...] = checked(
        (Exception,),
        _exceptions,
        "an exception class, or a tuple or list of them, as on=(TimeoutError, OSError)",
    )
    """Exceptions that are worth another run; others end it at once."""

    def __post_init__(self) -> None:
        left_out = isinstance(self.cap, _LeftOut)
        check_fields(self, "RetryPolicy")
        if left_out:
            object.__setattr__(self, "cap", max(CAP, self.base))
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
