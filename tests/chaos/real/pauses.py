"""How long full garbage collections stop a process: each is written to a file that many share."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

FULL = 2
EVERY = 5.0
"""Seconds between two that are asked for, beside those that come by themselves."""


class Pause(NamedTuple):
    """One full collection."""

    pid: int
    at: float
    """Seconds since the epoch."""
    took: float
    """Seconds by the clock, whatever else the machine did meanwhile."""
    cpu: float
    """Seconds of this thread's own work."""
    objects: int
    """What the collector had before it, all generations, in the end."""


class PauseLog:
    """The side of the process that is stopped: notes every full collection."""

    def __init__(self, file: str) -> None:
        self._out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._began = (0.0, 0.0)
        self._due = 0.0
        gc.callbacks.append(self._told)

    def collect_now_and_then(self) -> None:
        """Asks for a full collection where the last one that was asked for is long ago."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY
            gc.collect()

    def _told(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began = (time.perf_counter(), time.thread_time())
            return
        took, cpu = time.perf_counter() - self._began[0], time.thread_time() - self._began[1]
        line = f"{os.getpid()}\t{time.time()}\t{took}\t{cpu}\t{len(gc.get_objects())}\n"
        os.write(self._out, line.encode())


def pauses_of(file: Path) -> list[Pause]:
    """What was noted."""
    if not file.exists():
        return []
    parts = (line.split("\t") for line in file.read_text().splitlines())
    return [
        Pause(int(p[0]), float(p[1]), float(p[2]), float(p[3]), int(p[4]))
        for p in parts if len(p) == len(Pause._fields)
    ]  # fmt: skip
