"""How often a failed request runs, and how long it waits between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from processing.handlers.errors import RegistrationError
from processing.handlers.validation import STRICT, refusal


@dataclass(frozen=True, config=STRICT)
class RetryPolicy:
    """How often a request runs and how long it waits between.

    Seconds before run n + 1 are base * factor ** (n - 1), at most cap. Raises RegistrationError.
    """

    attempts: int = Field(default=1, ge=1, description="a whole number of runs, at least 1")
    """Runs in all, the first one counted; 1: never again."""
    base: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="a number above 0")
    """Seconds before the second run."""
    factor: float = Field(default=2.0, ge=1, allow_inf_nan=False, description="a number at least 1")
    """By what each pause is longer than the one before."""
    cap: float = Field(default=300.0, gt=0, allow_inf_nan=False, description="a number above 0")
    """Seconds of the longest pause; at least `base`."""
    jitter: float = Field(default=0.2, ge=0, le=1, description="a number at least 0 and at most 1")
    """Share of a pause that is drawn at random, 0 to 1."""
    on: type[BaseException] | tuple[type[BaseException], ...] = Field(
        default=(Exception,),
        description="an exception class, or a tuple of them, as on=(TimeoutError, OSError)",
    )
    """Exceptions that are worth another run; others end it at once."""

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            policy = validate(given)
        except ValidationError as error:
            if not isinstance(given, ArgsKwargs):
                raise  # something else was given in its place
            fields = cls.__pydantic_fields__  # type: ignore[attr-defined]
            raise refusal(error, fields, "RetryPolicy") from None
        if policy.cap < policy.base:
            raise RegistrationError(
                f"RetryPolicy(cap={policy.cap:g}): a number at least {policy.base:g}, its base"
            )
        return policy

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
