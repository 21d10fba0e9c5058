"""How often a failed request runs, and how long it waits between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from processing.handlers.errors import RegistrationError
from processing.handlers.validation import STRICT, refusal

CAP = 300.0
_BASE, _CAP = 1, 3
"""Places of `base` and `cap` among the arguments."""


def _as_tuple(given: Any) -> Any:
    """A list as a tuple: `except` and isinstance() take no list; the empty one is refused."""
    return tuple(given) if isinstance(given, list) and given else given


def _with_cap(given: ArgsKwargs) -> ArgsKwargs:
    """The arguments with a cap that is no lower than the base, where they name none."""
    named = given.kwargs or {}
    base = given.args[_BASE] if len(given.args) > _BASE else named.get("base")
    if "cap" in named or len(given.args) > _CAP or not isinstance(base, int | float) or base <= CAP:
        return given
    return ArgsKwargs(given.args, {**named, "cap": base})


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
    cap: float = Field(default=CAP, gt=0, allow_inf_nan=False, description="a number above 0")
    """Seconds of the longest pause; at least `base`, also where it is left out."""
    jitter: float = Field(default=0.2, ge=0, le=1, description="a number at least 0 and at most 1")
    """Share of a pause that is drawn at random, 0 to 1."""
    on: Annotated[
        type[BaseException] | tuple[type[BaseException], ...], BeforeValidator(_as_tuple)
    ] = Field(
        default=(Exception,),
        description="an exception class, or a tuple or list of them, as on=(TimeoutError, OSError)",
    )
    """Exceptions that are worth another run; others end it at once."""

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            policy = validate(_with_cap(given) if isinstance(given, ArgsKwargs) else given)
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
