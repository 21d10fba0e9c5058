"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.1
STILL = 2.0
"""Seconds by which a sleep is late where not only others had the processor."""


def eventually(
    condition: Callable[[], T],
    timeout: float = 90.0,
    message: str | Callable[[], str] = "",
) -> T:
    """Calls `condition` until it returns something true, and returns that.

    An AssertionError of the condition counts as "not yet". After `timeout` seconds that error is
    raised again, or an AssertionError that shows the last value, the condition, and `message`.
    Time in which the machine stood still does not count: nobody could do anything in it.
    """
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while True:
        late = time.monotonic() >= deadline
        try:
            value = condition()
        except AssertionError:
            if late:
                raise
        else:
            if value:
                return value
            if late:
                break
        deadline += _stood_still(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    text = message() if callable(message) else message
    raise AssertionError(
        f"not within {timeout:g} s: {text or _source(condition)} (last value: {value!r})"
    )


def _stood_still(pause: float) -> float:
    """Sleeps for that long; how many seconds longer it took, where that is more than load does."""
    begun = time.monotonic()
    time.sleep(pause)
    late = time.monotonic() - begun - pause
    return late if late > STILL else 0.0


def _source(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
