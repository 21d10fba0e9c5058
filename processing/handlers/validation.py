"""What an option or a policy may be, checked at once.

Plainly, not by pydantic: to load that takes a worker longer than its database's client does, and
many an app has no use of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from processing.handlers.errors import RegistrationError

Read = Callable[[Any], Any]
"""From what was given to what is kept; raises for what is wrong."""


class Rule(NamedTuple):
    """What one field takes."""

    read: Read
    wanted: str
    """The same in words."""


def keep_rules(made: Any, rules: Mapping[str, Rule], call: str = "") -> None:
    """Reads the fields of a new dataclass, in the order of `rules`.

    Raises RegistrationError for the first that is wrong: what was given, and what is wanted. `call`
    names what was called, where the field alone does not.
    """
    for name, rule in rules.items():
        given = getattr(made, name)
        try:
            kept = rule.read(given)
        except (TypeError, ValueError, OverflowError):
            wrong = f"{call}({name}={given!r})" if call else f"{name}={given!r}"
            raise RegistrationError(f"{wrong}: {rule.wanted}") from None
        object.__setattr__(made, name, kept)  # frozen for everybody else


def whole(least: int, most: int | None = None) -> Read:
    """Whole numbers in these bounds. True is none."""

    def read(given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool):
            raise TypeError
        if given < least or (most is not None and given > most):
            raise ValueError
        return given

    return read


def number(*, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Read:
    """Finite numbers in these bounds, as floats. True is none, and neither is "5"."""

    def read(given: Any) -> float:
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise TypeError
        value = float(given)
        if not (math.isfinite(value) and above < value and least <= value <= most):
            raise ValueError
        return value

    return read


def flag(given: Any) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise TypeError
    return given


def function(given: Any) -> Any:
    """What can be called."""
    if not callable(given):
        raise TypeError
    return given


def or_none(read: Read) -> Read:
    """What `read` takes, or None."""
    return lambda given: None if given is None else read(given)
