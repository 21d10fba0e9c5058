"""Faults that a test has asked for and that have not struck yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedback.contract.record import HEADERS, TYPE, Record
from processing.handlers.handler import Handler

OfWhat = str | Callable[..., Any] | None
"""A request type, the function that is registered for it, or a request id; None: of any."""


class PlannedFaults:
    """The first that fits strikes, once."""

    def __init__(self) -> None:
        self._planned: list[tuple[str, str | None]] = []

    def plan(self, fault: str, of: OfWhat, times: int) -> None:
        """It is to strike so many times."""
        declared = getattr(of, "__oncepool_handler__", None)
        name = declared.type if isinstance(declared, Handler) else of
        if not isinstance(name, str | None):
            raise TypeError(f"{of!r} is neither a type, a handler nor a request id")
        self._planned += [(fault, name)] * times

    def strikes(self, fault: str, record: Record) -> bool:
        """Whether it strikes this record."""
        raw = dict(record[HEADERS] or ()).get("ce_id") or b""
        for name in (record[TYPE], raw.decode("utf-8", "replace"), None):
            if (fault, name) in self._planned:
                self._planned.remove((fault, name))
                return True
        return False
