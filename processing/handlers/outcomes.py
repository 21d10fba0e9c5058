"""How a run ends: what handlers raise or return, and which state that becomes."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import feedback
import processing
from feedback.contract.headers import LONGEST_DELAY
from feedback.contract.states import HANDLER_ERROR, INVALID_PAYLOAD, RETRY, State
from processing.handlers.errors import InvalidPayload, InvalidResult
from processing.handlers.options import Effect
from processing.handlers.tracebacks import Tracebacks

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TEXT_LIMIT = 2000
OURS = (
    "<",  # frozen modules, generated code
    *(str(Path(package.__path__[0])) + os.sep for package in (feedback, processing)),
)
_PATHS = {
    sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib", "platstdlib")
}
_LIBRARIES = tuple(sorted(_PATHS, key=len, reverse=True))  # one may stand in another


class Reject(Exception):
    """Raise it to refuse the request for good: state `rejected` with this code.

    `code` is snake_case, at most 64 characters; `message` is kept as the reason.
    """

    def __init__(self, code: str, message: str = "") -> None:
        if not _CODE.fullmatch(code):
            raise ValueError(
                f"Reject code {code!r} is not snake_case of at most 64 characters, as in 'no_funds'"
            )
        super().__init__(code, message)
        self.code = code
        self.message = message


class Retry(Exception):
    """Raise it when the request cannot be done now: nothing happened, it may run again.

    `after` (seconds, or a timedelta) or `at` (aware datetime) says when, at most ten years ahead;
    `counts=False` does not use up an attempt.
    """

    def __init__(
        self,
        after: float | timedelta | None = None,
        *,
        at: datetime | None = None,
        reason: str = "",
        counts: bool = True,
    ) -> None:
        if after is not None and at is not None:
            raise ValueError("Retry takes after= or at=, not both")
        if at is not None and getattr(at, "tzinfo", None) is None:
            raise ValueError("Retry(at=) needs a time with an offset, as datetime.now(UTC) gives")
        super().__init__(reason)
        self.after = _seconds(after)
        self.at = at
        self.reason = reason
        self.counts = counts

    def __reduce__(self) -> tuple[Any, ...]:
        # A handler may have it raised by a pool of processes of its own.
        made = partial(type(self), self.after, at=self.at, reason=self.reason, counts=self.counts)
        return made, (), self.__dict__

    def due(self, now: datetime) -> datetime | None:
        """When it may run again, or None where the retry policy decides."""
        if self.after is not None:
            # Milliseconds where seconds are meant lie beyond any date; a Decimal is no float.
            return now + timedelta(seconds=float(min(self.after, LONGEST_DELAY.total_seconds())))
        return self.at


def _seconds(after: Any) -> float | None:
    given = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(given, str) or (given is not None and not 0 <= given < float("inf")):
        raise ValueError(f"Retry(after={after!r}): seconds from now, 0 or more, or a timedelta")
    return given


@dataclass(frozen=True, slots=True)
class Done:
    """A check's answer: the external effect happened, with this result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """A check's answer: the external effect did not happen and never will from that run."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A check's answer: nobody can tell yet."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run that did not return ends. Texts are safe for the journal: UTF-8, no NUL.

    `reason` is for the producer, `error` for whoever looks after the handler. `retry` is the
    handler's own Retry and `raised` the exception that it raised instead, for the policy that
    decides whether it runs again, with where that was; `due` is when it may, where it waits;
    `superseded_by` is the id of the request that took its place; `begun` says of what is given back
    that its handler may have been entered.
    """

    state: State
    code: str
    reason: str | None = None
    error: str | None = None
    retry: Retry | None = None
    raised: Tracebacks | None = field(default=None, compare=False, repr=False)
    due: datetime | None = None
    superseded_by: str | None = None
    begun: bool = False

    @property
    def cause(self) -> BaseException | None:
        """What the handler raised, where that was neither Reject nor Retry."""
        return None if self.raised is None else self.raised.error

    @property
    def meant(self) -> bool:
        """The handler said so itself, with Reject or Retry."""
        return self.retry is not None or self.state is State.REJECTED


def outcome_of(error: BaseException, effect: Effect = "transaction") -> Outcome:
    """The state that an exception out of parsing or running a handler becomes; never raises.

    With external effects whatever does not say that nothing happened is in doubt.
    """
    try:
        said = error if effect == "external" else _only_one(error)
        return _meant(said) or _unmeant(error, effect)
    except BaseException:  # noqa: BLE001 - a Reject or Retry of the user's own make that cannot be read
        return _unmeant(error, effect)


def _only_one(error: BaseException) -> BaseException:
    """What a group is of, as a TaskGroup makes it of what one of its tasks has raised.

    Of tasks that were cut off for it a group says nothing, and a call outside may have been one.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _meant(error: BaseException) -> Outcome | None:
    match error:
        case Reject():
            return Outcome(State.REJECTED, error.code, reason=safe_text(error.message) or None)
        case Retry():
            # Read once, here, where what is wrong with one of the user's own make is caught.
            retry = Retry(error.after, at=error.at, reason=error.reason, counts=error.counts)
            return Outcome(State.FAILED, RETRY, reason=safe_text(error.reason) or None, retry=retry)
        case InvalidPayload():  # found before the handler starts, whatever its effect
            return Outcome(State.REJECTED, INVALID_PAYLOAD, reason=safe_text(str(error)))
        case _:
            return None


def _unmeant(error: BaseException, effect: Effect) -> Outcome:
    state = State.IN_DOUBT if effect == "external" else State.FAILED
    return Outcome(state, HANDLER_ERROR, error=describe(error), raised=Tracebacks(error))


def describe(error: BaseException) -> str:
    """One line: type, message, and the deepest place in the application's own code.

    InvalidResult says itself which handler it is about, and is raised behind that.
    """
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except BaseException:  # noqa: BLE001 - a __str__ of the user's that fails must not hide the first error
        text = f"{type(error).__name__} (its __str__ fails)"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not isinstance(error, InvalidResult):
        place = _own_frame(frames)
        text += f" ({place.filename}:{place.lineno} in {place.name})"
    return safe_text(text)


def _own_frame(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary:
    """The deepest frame of the application: of no library, nor of ours.

    Of an application that is installed like a library: of the package that was entered first.
    """
    foreign = [frame for frame in frames if not frame.filename.startswith(OURS)]
    if own := [frame for frame in foreign if not frame.filename.startswith(_LIBRARIES)]:
        return own[-1]
    if not foreign:
        return frames[-1]
    library = next(path for path in _LIBRARIES if foreign[0].filename.startswith(path))
    package, _, _ = foreign[0].filename.removeprefix(library).partition(os.sep)
    return [frame for frame in foreign if frame.filename.startswith(library + package)][-1]


def safe_text(text: object, longest: int = _TEXT_LIMIT) -> str:
    """`text` as PostgreSQL and JSON take it: no NUL, no lone surrogates, bounded."""
    plain = str(text).encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
