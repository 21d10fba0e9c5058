"""How often something was done, counted where it is done, by any number of processes.

A process appends a line to a file of its own for each STEP of what it does, in requests or in
another unit: the time (seconds of the clock that all processes share) and how much it has done so
far. Requests, and how much that was, until this moment stand in sixteen bytes of another file. So a
rate is known without a row, a status or a question to anybody, at some 150 ns a call.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

STEP = 20
NOW = ".now"
"""How the names of those other files end."""
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
        self._requests = 0
        path = Path(os.environ[FOLDER]) / f"{os.getpid()}-{time.monotonic_ns()}"
        self._file = path.open("a", buffering=1)
        with path.with_suffix(NOW).open("w+b") as file:
            file.write(bytes(16))
            file.flush()
            self._now = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")

    def add(self, requests: int = 1, each: int = 1) -> None:
        """So many more, of which each counts so much."""
        self._now[1] = self._done = self._done + requests * each
        self._now[0] = self._requests = self._requests + requests
        if self._done - self._told >= self._step:
            self._told = self._done
            self._file.write(f"{time.monotonic()} {self._done}\n")


def marks(folder: Path) -> list[Mark]:
    """All that was counted so far, ascending; without a line that is being written."""
    steps: list[tuple[float, int]] = []
    for path in folder.iterdir():
        if path.suffix == NOW:
            continue
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


class Counted(NamedTuple):
    """So far, in all."""

    requests: int
    done: int
    """In their unit."""


def counted(folder: Path) -> Counted:
    """What stands there now."""
    found = [struct.unpack("QQ", path.read_bytes()) for path in folder.glob(f"*{NOW}")]
    return Counted(sum(requests for requests, _ in found), sum(done for _, done in found))


def rate_between(found: Sequence[Mark], first: float, last: float) -> float:
    """How much a second, from when `first` was done of all to when `last` was.

    Raises ValueError where there was not so much.
    """
    begin = bisect_left(found, first, key=lambda mark: mark.done)
    end = bisect_left(found, last, key=lambda mark: mark.done)
    if end >= len(found) or found[end].at <= found[begin].at:
        raise ValueError(f"{found[-1].done if found else 0} is too little to measure")
    return (found[end].done - found[begin].done) / (found[end].at - found[begin].at)
