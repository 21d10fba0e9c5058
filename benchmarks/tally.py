"""How often something was done, counted where it is done, by any number of processes.

A process appends a line to a file of its own for each STEP calls: the time (seconds of the clock
that all processes share) and its number of calls so far. So a rate is known without a row, a status
or a question to anybody, at some 50 ns a call.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

STEP = 100
FOLDER = "TALLY"
"""Environment variable with the folder of the files."""


class Mark(NamedTuple):
    """`done` calls in all by `at`."""

    at: float
    done: int


class Tally:
    """Counts the calls of this process."""

    def __init__(self, step: int = STEP) -> None:
        self._step = step
        self._left = step
        self._done = 0
        path = Path(os.environ[FOLDER]) / f"{os.getpid()}-{time.monotonic_ns()}"
        self._file = path.open("a", buffering=1)

    def add(self, _: object = None) -> None:
        """One call."""
        self._left -= 1
        if not self._left:
            self._left = self._step
            self._done += self._step
            self._file.write(f"{time.monotonic()} {self._done}\n")


def marks(folder: Path) -> list[Mark]:
    """All that was counted so far, ascending; without a line that is being written."""
    steps: list[tuple[float, int]] = []
    for path in folder.iterdir():
        before = 0
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                time_, calls = line.split()
                steps.append((float(time_), int(calls) - before))
                before = int(calls)
    found: list[Mark] = []
    total = 0
    for at, more in sorted(steps):
        total += more
        found.append(Mark(at, total))
    return found


def rate_between(found: Sequence[Mark], first: float, last: float) -> float:
    """Calls a second between the `first` and the `last` call of all (numbers of calls).

    Raises ValueError where there were not so many.
    """
    begin = bisect_left(found, first, key=lambda mark: mark.done)
    end = bisect_left(found, last, key=lambda mark: mark.done)
    if end >= len(found) or found[end].at <= found[begin].at:
        raise ValueError(f"{found[-1].done if found else 0} calls are too few to measure")
    return (found[end].done - found[begin].done) / (found[end].at - found[begin].at)
