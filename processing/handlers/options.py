"""What a registration may say beside the function, checked at once."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, Self, TypedDict, get_args

from feedback.status.status import DEFAULT_TTL
from processing.handlers.errors import RegistrationError
from processing.handlers.retry_policy import RetryPolicy

Effect = Literal["transaction", "external", "none"]
_EFFECTS: tuple[str, ...] = get_args(Effect)
_WINDOW_CAP = 10  # windows
_TYPE_LENGTH = 200
_YEAR = 366 * 86400


class HandlerOptions(TypedDict, total=False):
    """The keyword arguments of App.handler and App.batch_handler. Times in seconds."""

    timeout: float | None
    max_timeout: float | None
    retries: int | RetryPolicy
    effect: Effect
    check: Callable[..., Any] | None
    fingerprint: Callable[[Any], Any] | None
    coalesce: Callable[[Any], str | None] | None
    window: float
    window_cap: float | None
    not_before: Callable[[Any], datetime | None] | None
    status_ttl: int
    max_at_once: int | None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one handler with their defaults; `effect` None = transaction, not asked for.

    retries, coalesce, window, window_cap and not_before are kept for the versions that act on them.
    """

    timeout: float | None = None
    max_timeout: float | None = None
    retries: int | RetryPolicy = 0
    effect: Effect | None = None
    check: Callable[..., Any] | None = None
    fingerprint: Callable[[Any], Any] | None = None
    coalesce: Callable[[Any], str | None] | None = None
    window: float = 0
    window_cap: float | None = None
    not_before: Callable[[Any], datetime | None] | None = None
    status_ttl: int = DEFAULT_TTL
    max_at_once: int | None = None

    @classmethod
    def read(cls, given: HandlerOptions, where: str) -> Self:
        """The options that were given; raises RegistrationError that begins with `where`."""
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                nearest = difflib.get_close_matches(name, names, n=1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
                raise RegistrationError(
                    f"{where}: the option {name!r} is unknown{hint} Options: {', '.join(names)}"
                )
        options = cls(**given)
        try:
            options._validate()
        except RegistrationError as error:
            raise RegistrationError(f"{where}: {error}") from None
        return options

    def _validate(self) -> None:
        _seconds("timeout", self.timeout)
        _seconds("max_timeout", self.max_timeout)
        if self.max_timeout is not None and self.max_timeout < (self.timeout or 0):
            raise RegistrationError(
                f"max_timeout={self.max_timeout:g} is below timeout={self.timeout:g}; "
                "it bounds what a request's own ce_timeout may ask for, so give at least timeout"
            )
        RetryPolicy.of(self.retries)
        if self.effect is not None and self.effect not in _EFFECTS:
            raise RegistrationError(f"effect={self.effect!r}: one of {', '.join(_EFFECTS)}")
        for name in ("check", "fingerprint", "coalesce", "not_before"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise RegistrationError(f"{name}={value!r}: a function")
        if self.check is not None and self.effect != "external":
            raise RegistrationError(
                "check= finds out whether an external effect happened; "
                'give effect="external" too, or leave check out'
            )
        self._validate_coalescing()
        _whole("status_ttl", self.status_ttl, most=_YEAR)
        if self.max_at_once is not None:
            _whole("max_at_once", self.max_at_once)

    def _validate_coalescing(self) -> None:
        if self.coalesce is None:
            if self.window or self.window_cap is not None:
                raise RegistrationError("window and window_cap belong to coalesce=; give it too")
            return
        if self.effect not in (None, "transaction"):
            raise RegistrationError(
                f'coalesce= needs effect="transaction", not {self.effect!r}: an older request '
                "is only superseded safely in the journal's transaction"
            )
        if self.window != 0:
            _seconds("window", self.window)
        _seconds("window_cap", self.window_cap)
        if self.window_cap is not None and self.window_cap < self.window:
            raise RegistrationError(
                f"window_cap={self.window_cap:g} is below window={self.window:g}; "
                f"it bounds how often the window restarts ({_WINDOW_CAP} windows if left out)"
            )


def validate_type(type: object, where: str) -> str:
    """A request type as the contract has it: 1 to 200 characters, no control characters."""
    if not isinstance(type, str):
        raise RegistrationError(
            f"{where}: the request type is {type!r}; "
            'it goes in brackets, as @app.handler("payment.create")'
        )
    if not 1 <= len(type) <= _TYPE_LENGTH:
        raise RegistrationError(
            f"{where}: a request type has 1 to {_TYPE_LENGTH} characters, not {len(type)}"
        )
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in type):
        raise RegistrationError(f"{where}: the request type {type!r} has control characters")
    return type


def _seconds(name: str, value: object) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:  # type: ignore[operator]
        raise RegistrationError(f"{name}={value!r}: a number of seconds above 0")


def _whole(name: str, value: object, most: int | None = None) -> None:
    if type(value) is not int or value < 1 or (most is not None and value > most):
        bound = f", at most {most}" if most is not None else ""
        raise RegistrationError(f"{name}={value!r}: a whole number, at least 1{bound}")
