"""How often something was done, counted where it is done, by any number of processes.

A process appends a line to a file of its own for each STEP of what it does, in calls or in another
unit: the time (seconds of the clock that all processes share) and how much it has done so far. So a
rate is known without a row, a status or a question to anybody, at some 100 ns a call.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

STEP = 20
LONGEST_LINE = 200
"""Bytes, at least two lines."""
FOLDER, STEP_GIVEN = "TALLY", "TALLY_STEP"
"""Environment variables: the folder of the files, and another STEP."""


class Mark(NamedTuple):
    """`done` in all by `at`."""

    at: float
    done: int


class Tally:
    """Counts what this process does."""

    def __init__(self, step: int | None = None) -> None:
        self._step = step or int(os.environ.get(STEP_GIVEN, STEP))
        self._told = 0
        self._done = 0
        path = Path(os.environ[FOLDER]) / f"{os.getpid()}-{time.monotonic_ns()}"
        self._file = path.open("a", buffering=1)

    def add(self, amount: int = 1) -> None:
        """So much more."""
        self._done += amount
        if self._done - self._told >= self._step:
            self._told = self._done
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


def counted(folder: Path) -> int:
    """What was counted so far, in all: the last line of each process."""
    found = 0
    for path in folder.iterdir():
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE))
            lines = file.read().split(b"\n")
        if len(lines) > 1 and lines[-2]:  # the last one ends it, or is being written
            found += int(lines[-2].split()[1])
    return found


def rate_between(found: Sequence[Mark], first: float, last: float) -> float:
    """How much a second, from when `first` was done of all to when `last` was.

    Raises ValueError where there was not so much.
    """
    begin = bisect_left(found, first, key=lambda mark: mark.done)
    end = bisect_left(found, last, key=lambda mark: mark.done)
    if end >= len(found) or found[end].at <= found[begin].at:
        raise ValueError(f"{found[-1].done if found else 0} is too little to measure")
    return (found[end].done - found[begin].done) / (found[end].at - found[begin].at)
