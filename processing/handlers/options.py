"""What a registration may say beside the function, checked at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.dataclasses import dataclass

from feedback.status.status import DEFAULT_TTL
from processing.handlers.errors import RegistrationError
from processing.handlers.retry_policy import RetryPolicy
from processing.handlers.signature import refuse_unfit
from processing.handlers.validation import STRICT, refusal, unknown_option
from processing.ipc.progress import SEATS

Effect = Literal["transaction", "external", "none"]
WINDOWS = 10
"""The cap of a type's window, in windows, where it gives none."""
_TYPE_LENGTH = 200
_YEAR = 366 * 86400


def _whole(given: Any) -> Any:
    """60.0 as 60."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_SECONDS = "a number of seconds above 0"
_FUNCTION = "a function"


class HandlerOptions(TypedDict, total=False):
    """The keyword arguments of App.handler and App.batch_handler. Times in seconds."""

    timeout: float | None
    """How long a run may take; None: the setting `request_timeout`."""
    max_timeout: float | None
    """The most that a request's own `ce_timeout` may ask for; None: `timeout`."""
    retries: int | RetryPolicy
    """Runs after the first one that failed (default 0), or a policy."""
    effect: Effect
    """Where its effects are: "transaction" (default) in the journal's database through `tx`, where
    its row goes also without one; "external" elsewhere, "none" nowhere."""
    check: Callable[..., Any] | None
    """For effect="external": from the request to Done, NotDone or Unknown; asked about a run in
    doubt."""
    fingerprint: Callable[[Any], Any] | None
    """From the payload to what must be equal in resends; None: the payload as a whole."""
    coalesce: Callable[[Any], str | None] | None
    """From the payload to the reference of which only the newest request runs; None of a payload:
    it runs for itself."""
    window: float
    """With coalesce: seconds without a newer request before one runs (default 0)."""
    window_cap: float | None
    """With coalesce: seconds that the first one is held back at most; None: ten windows."""
    not_before: Callable[[Any], datetime | None] | None
    """From the payload to the time (aware) before which it does not run; None: at once."""
    status_ttl: float
    """Whole seconds that its status is kept (default 3600), at most a year."""
    done_status: bool
    """With effect="none": whether a status is written when it is done (default True)."""
    max_at_once: int | None
    """Most runs of this type at once in one instance; None: as many as the workers can run."""
    concurrency: int | None
    """Of an `async def` handler: most runs of this type at once in one worker (default 10, at most
    1000)."""
    pipeline: bool
    """Its statements on `tx` are sent without waiting for their answers, which it does not read
    (default False)."""
    redelivery: bool
    """Whether a message that its worker or its instance may have run when it died is run where the
    journal has no trace of it (default True); False: it ends as `failed`."""


@dataclass(frozen=True, config=STRICT)
class CheckedOptions:
    """The options of one handler with their defaults.

    Descriptions say what each one takes, for whoever gave something else.
    """

    timeout: Seconds | None = Field(default=None, description=_SECONDS)
    max_timeout: Seconds | None = Field(default=None, description=_SECONDS)
    retries: Annotated[int, Field(ge=0)] | RetryPolicy = Field(
        default=0, description="a whole number of runs after the first, 0 or more, or a RetryPolicy"
    )
    effect: Effect = Field(default="transaction", description="one of transaction, external, none")
    check: Callable[..., Any] | None = Field(default=None, description=_FUNCTION)
    fingerprint: Callable[[Any], Any] | None = Field(default=None, description=_FUNCTION)
    coalesce: Callable[[Any], str | None] | None = Field(default=None, description=_FUNCTION)
    window: float = Field(default=0, ge=0, allow_inf_nan=False, description=_SECONDS)
    window_cap: Seconds | None = Field(default=None, description=_SECONDS)
    not_before: Callable[[Any], datetime | None] | None = Field(default=None, description=_FUNCTION)
    status_ttl: Annotated[int, BeforeValidator(_whole)] = Field(
        default=DEFAULT_TTL,
        ge=1,
        le=_YEAR,
        description=f"a whole number, at least 1, at most {_YEAR}",
    )
    done_status: bool = Field(default=True, description="True or False")
    max_at_once: int | None = Field(default=None, ge=1, description="a whole number, at least 1")
    concurrency: int | None = Field(
        default=None, ge=1, le=SEATS, description=f"a whole number, at least 1, at most {SEATS}"
    )
    pipeline: bool = Field(default=False, description="True or False")
    redelivery: bool = Field(default=True, description="True or False")

    @classmethod
    def read(cls, given: HandlerOptions, where: str) -> Self:
        """The options that were given; raises RegistrationError that begins with `where`."""
        fields = cls.__pydantic_fields__  # type: ignore[attr-defined]
        for name in given:
            if name not in fields:
                raise RegistrationError(f"{where}: {unknown_option(name, fields)}")
        try:
            options = cls(**given)  # type: ignore[arg-type]  # whole floats are taken
            options._refuse_combinations()
            options._refuse_functions()
        except ValidationError as error:
            raise RegistrationError(f"{where}: {refusal(error, fields)}") from None
        except RegistrationError as error:
            raise RegistrationError(f"{where}: {error}") from None
        return options

    def _refuse_functions(self) -> None:
        """Those that are called with a payload; App reads the signature of `check`."""
        for name in ("fingerprint", "coalesce", "not_before"):
            if (function := getattr(self, name)) is not None:
                try:
                    refuse_unfit(function, "the payload")
                except RegistrationError as error:
                    raise RegistrationError(f"{name}=: {error}") from None

    def _refuse_combinations(self) -> None:
        if self.max_timeout is not None and self.max_timeout < (self.timeout or 0):
            raise RegistrationError(
                f"max_timeout={self.max_timeout:g} is below timeout={self.timeout:g}; "
                "it bounds what a request's own ce_timeout may ask for, so give at least timeout"
            )
        if self.check is not None and self.effect != "external":
            raise RegistrationError(
                "check= finds out whether an external effect happened; "
                'give effect="external" too, or leave check out'
            )
        if self.pipeline and self.effect != "transaction":
            raise RegistrationError(
                f"pipeline= sends what goes through `tx`, and effect={self.effect!r} has none; "
                "leave it out"
            )
        if not self.done_status and self.effect != "none":
            raise RegistrationError(
                'done_status=False leaves no trace of a success, which only effect="none" may; '
                "give that too, or leave done_status out"
            )
        if not self.redelivery and self.retries not in (0, RetryPolicy(attempts=1)):
            raise RegistrationError(
                "redelivery=False says that what may have run is not to be run again by itself, "
                "and retries= the opposite; leave one of them out"
            )
        if self.coalesce is None and (self.window or self.window_cap is not None):
            raise RegistrationError("window and window_cap belong to coalesce=; give it too")
        if self.coalesce is not None and self.effect != "transaction":
            raise RegistrationError(
                f'coalesce= needs effect="transaction", not {self.effect!r}: an older request '
                "is only superseded safely in the journal's transaction"
            )
        if self.window_cap is not None and self.window_cap < self.window:
            raise RegistrationError(
                f"window_cap={self.window_cap:g} is below window={self.window:g}; "
                f"it bounds how often the window restarts ({WINDOWS} windows if left out)"
            )


def validate_type(type: object, where: str) -> str:
    """A request type as the contract has it: 1 to 200 characters, no control characters."""
    if not isinstance(type, str):
        raise RegistrationError(
            f"{where}: the request type is {type!r}; "
            'it is text, as in @app.handler("payment.create")'
        )
    if not 1 <= len(type) <= _TYPE_LENGTH:
        raise RegistrationError(
            f"{where}: a request type has 1 to {_TYPE_LENGTH} characters, not {len(type)}"
        )
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in type):
        raise RegistrationError(f"{where}: the request type {type!r} has control characters")
    return type
