"""Faults that a test has asked for and that have not struck yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from feedback.contract.record import HEADERS, TYPE, Record
from processing.handlers.handler import Handler
from processing.handlers.validation import did_you_mean
from processing.testing.given import KitError, nearest

OfWhat = str | Callable[..., Any] | None
"""A request type, the function that is registered for it, or a request id; None: of any."""
Point = Literal["commit", "committed"]
"""Where a worker can be killed: about to commit, or when it has and has told nobody yet."""
POINTS: Final = dict.fromkeys(get_args(Point))


class _Fault(NamedTuple):
    kind: str
    """lose, deliver_twice, answer_twice, or the point at which a worker dies."""
    of: str | None

    def __str__(self) -> str:
        of = "" if self.of is None else repr(self.of)
        if self.kind in POINTS:
            return f"kill_at({self.kind!r}{of and f', {of}'})"
        return f"{self.kind}({of})"


class PlannedFaults:
    """The first that fits strikes, once."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._planned: list[_Fault] = []

    def plan(self, kind: str, of: OfWhat, times: int) -> None:
        """It is to strike so many times. Raises KitError for a handler of another app."""
        declared = getattr(of, "__oncepool_handler__", None)
        name = declared.type if isinstance(declared, Handler) else of
        if not isinstance(name, str | None):
            raise TypeError(f"{of!r} is neither a type, a handler nor a request id")
        if name is not of and name not in self._handlers:
            raise KitError(nearest("handler of type", name, self._handlers))
        self._planned += [_Fault(kind, name)] * times

    def plan_kill(self, point: str, of: OfWhat, times: int) -> None:
        """A worker is to die there. Raises KitError, too, where there is no such point."""
        if point not in POINTS:
            raise KitError(nearest("point", point, POINTS))
        self.plan(point, of, times)

    def strikes(self, kind: str, record: Record) -> bool:
        """Whether it strikes this record."""
        raw = dict(record[HEADERS] or ()).get("ce_id") or b""
        for name in (record[TYPE], raw.decode("utf-8", "replace"), None):
            if (kind, name) in self._planned:
                self._planned.remove(_Fault(kind, name))
                return True
        return False

    def clear(self) -> None:
        """None is to strike any more."""
        self._planned.clear()

    def left(self) -> str:
        """Words for those that have not struck; none without any."""
        if not self._planned:
            return ""
        said = [
            f"{fault}{f', {times} times' if times > 1 else ''}{self._doubt(fault.of)}"
            for fault, times in Counter(self._planned).items()
        ]
        return "planned for this sandbox, and it never struck: " + "; ".join(said)

    def _doubt(self, of: str | None) -> str:
        if of is None or of in self._handlers:
            return ""
        hint = did_you_mean(of, self._handlers).rstrip(".")
        return f" (no message had that id, and there is no such type{hint})"
