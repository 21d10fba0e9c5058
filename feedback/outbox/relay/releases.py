"""Rows of a partition that takes messages again: sent soon, though they had been put off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class PutOffRows(Protocol):
    """What is asked of the table."""

    def put_off(self, error: str) -> int:
        """How many rows wait whose error begins so."""

    def release(self, error: str) -> int:
        """Has some of them sent soon; how many."""


class Releases:
    """Which errors are no more, some rows in each turn, as others go beside them.

    Of an error as many rows as waited when it came first: another relay that does not know that its
    partition takes messages again puts them off anew meanwhile, and there would be no end of it.
    """

    def __init__(self, errors: Iterable[str]) -> None:
        self._errors = list(errors)
        self._left: int | None = None

    def __bool__(self) -> bool:
        return bool(self._errors)

    def turn(self, errors: Iterable[str], table: PutOffRows) -> None:
        """Releases some rows; `errors`: the beginnings of those that are no more since the last."""
        self._errors += errors
        while self._errors:
            if self._left is None:
                self._left = table.put_off(self._errors[0])
            released = table.release(self._errors[0]) if self._left else 0
            self._left -= released
            if released and self._left > 0:
                return
            del self._errors[0]
            self._left = None
