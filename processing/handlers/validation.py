"""Fields of options and policies: what each one takes, and how users are told of anything else.

Not pydantic's dataclasses: loading it is a quarter of what a worker takes to start, and an app need
not use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from processing.handlers.errors import RegistrationError

Take = Callable[[Any], Any]
"""From what was given to what is kept. Raises ValueError, TypeError or OverflowError for what the
field does not take."""


def checked(default: Any, take: Take, wanted: str) -> Any:
    """A dataclass's field; `wanted` says what it takes, for whoever gave something else."""
    return dataclasses.field(default=default, metadata={"take": take, "wanted": wanted})


def check_fields(instance: Any, call: str = "") -> None:
    """To be called by `__post_init__`: keeps what each field makes of what it was given.

    Raises RegistrationError. `call` names what was called, where the field alone does not.
    """
    for field in dataclasses.fields(instance):
        given = getattr(instance, field.name)
        try:
            taken = field.metadata["take"](given)
        except (ValueError, TypeError, OverflowError):
            raise refusal(field, given, call) from None
        object.__setattr__(instance, field.name, taken)  # it is frozen for others


def refusal(field: dataclasses.Field[Any], given: object, call: str = "") -> RegistrationError:
    """The error in words: what was given, and what the field takes."""
    said, wanted = f"{field.name}={given!r}", field.metadata["wanted"]
    return RegistrationError(f"{call}({said}): {wanted}" if call else f"{said}: {wanted}")


def none_or(take: Take) -> Take:
    """None, too."""
    return lambda given: None if given is None else take(given)


def whole(least: int, most: int | None = None) -> Take:
    """A whole number within these; True is none, and neither are "5" and 5.0."""

    def take(given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool):
            raise TypeError
        return int(_within(given, least, math.inf if most is None else most))

    return take


def number(*, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Take:
    """A finite number within these, as a float; True is none, and neither is "5"."""

    def take(given: Any) -> float:
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise TypeError
        if not math.isfinite(given) or given <= above:
            raise ValueError
        return float(_within(given, least, most))

    return take


def one_of(*values: str) -> Take:
    """One of these texts."""

    def take(given: Any) -> str:
        if not isinstance(given, str) or given not in values:
            raise ValueError
        return given

    return take


def truth(given: Any) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise TypeError
    return given


def function(given: Any) -> Any:
    """What can be called."""
    if not callable(given):
        raise TypeError
    return given


def _within(given: Any, least: float, most: float) -> Any:
    if not least <= given <= most:
        raise ValueError
    return given
