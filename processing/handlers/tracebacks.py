"""The frames that exceptions were raised through, kept apart from them.

Python puts the frames of each raise in front of those that an exception has. One that is raised
again and again, as a Reject that a module has made once or what a Future failed with, would keep
them all, with whatever handlers had in their variables, and be read through at each end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Tracebacks:
    """Those of an exception as it was caught, and of what led to it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._of = [(one, one.__traceback__) for one in with_its_causes(error)]

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Meanwhile the exceptions have them."""
        for one, frames in self._of:
            BaseException.with_traceback(one, frames)
        try:
            yield
        finally:
            for one, _ in self._of:
                BaseException.with_traceback(one, None)

    def forget(self) -> None:
        """They were shown for the last time: what handlers had in their variables is free."""
        self._of = []


def let_go(error: BaseException) -> None:
    """Of an exception that was caught, and is handed on no more, nothing keeps the frames."""
    for one in with_its_causes(error):
        BaseException.with_traceback(one, None)  # also of a class that lets nobody set attributes


def with_its_causes(error: BaseException) -> list[BaseException]:
    """It, what led to it, and what it groups."""
    found: dict[int, BaseException] = {}
    coming: list[BaseException | None] = [error]
    while coming:
        one = coming.pop()
        if one is None or id(one) in found:
            continue
        found[id(one)] = one
        coming += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            coming += one.exceptions
    return list(found.values())
