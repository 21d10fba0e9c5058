"""How often a failed request runs, and how long it waits between."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from processing.handlers.errors import RegistrationError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request runs and how long it waits between.

    attempts: runs in all, the first one counted (1 = never again).
    base, factor, cap: seconds before run n + 1 are base * factor ** (n - 1), at most cap.
    jitter: share of the wait that is drawn at random, 0 to 1.
    on: exceptions that are worth another run; others end it at once.
    """

    attempts: int = 1
    base: float = 1.0
    factor: float = 2.0
    cap: float = 300.0
    jitter: float = 0.2
    on: type[BaseException] | tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise RegistrationError(
                f"RetryPolicy(attempts={self.attempts!r}): a whole number of runs, at least 1"
            )
        self._number("base", above=0)
        self._number("factor", above=1, or_equal=True)
        self._number("cap", above=self.base, or_equal=True)
        self._number("jitter", above=0, or_equal=True, most=1)
        kinds: tuple[object, ...] = self.on if isinstance(self.on, tuple) else (self.on,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise RegistrationError(
                    f"RetryPolicy(on=...): {kind!r} is not an exception class; "
                    "give a tuple of classes, as on=(TimeoutError, OSError)"
                )

    def _number(
        self, name: str, *, above: float, or_equal: bool = False, most: float = math.inf
    ) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            not number
            or not math.isfinite(value)
            or value > most
            or not (value > above or (or_equal and value == above))
        ):
            bound = f"{'at least' if or_equal else 'above'} {above:g}"
            if most < math.inf:
                bound += f" and at most {most:g}"
            raise RegistrationError(f"RetryPolicy({name}={value!r}): a number {bound}")

    @classmethod
    def of(cls, retries: int | RetryPolicy) -> RetryPolicy:
        """`retries=N` as a policy: N + 1 runs."""
        if isinstance(retries, RetryPolicy):
            return retries
        if type(retries) is not int or retries < 0:
            raise RegistrationError(
                f"retries={retries!r}: a whole number of runs after the first, 0 or more, "
                "or a RetryPolicy"
            )
        return cls(attempts=retries + 1)

    def pause(self, used: int, draw: Callable[[], float]) -> float:
        """Seconds from the end of attempt number `used` to the next; `draw` gives 0 to 1."""
        try:
            longest = min(self.cap, self.base * self.factor ** (used - 1))
        except OverflowError:
            longest = self.cap
        return longest * (1 - self.jitter * draw())
