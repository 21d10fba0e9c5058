"""What processes and services hold while it runs: memory, descriptors, threads, connections."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import psutil

from tests.chaos.real.members import Members


@dataclass
class Sample:
    """One look. Of each program the most that one process of it holds."""

    at: float
    processes: int = 0
    rss: dict[str, float] = field(default_factory=dict)
    """MiB."""
    descriptors: dict[str, int] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    pending: int = 0


PROGRAMS = {"main": "consumer", "worker": "processing.worker",
            "maintenance": "processing.maintenance"}  # fmt: skip


class Watch:
    """Looks every few seconds, in a thread of its own."""

    def __init__(self, members: Members, pending: Callable[[], int], every: float) -> None:
        self.samples: list[Sample] = []
        self._members, self._pending, self._every = members, pending, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self.samples.append(self._look())

    def _look(self) -> Sample:
        sample = Sample(time.time(), pending=self._pending())
        for member in self._members.alive:
            with contextlib.suppress(psutil.Error):
                main = psutil.Process(member.pid)
                self._add(sample, "main", main)
                for child in main.children():
                    with contextlib.suppress(psutil.Error):
                        words = child.cmdline()
                        for program, module in PROGRAMS.items():
                            if program != "main" and module in words:
                                self._add(sample, program, child)
        return sample

    @staticmethod
    def _add(sample: Sample, program: str, process: psutil.Process) -> None:
        with process.oneshot():
            rss, fds, threads = (
                process.memory_info().rss / 2**20, process.num_fds(), process.num_threads()
            )  # fmt: skip
        sample.processes += 1
        for kept, value in (
            (sample.rss, rss), (sample.descriptors, fds), (sample.threads, threads)
        ):  # fmt: skip
            kept[program] = max(kept.get(program, 0), value)  # type: ignore[assignment,type-var]


LONG_ENOUGH = 240
"""Samples from which on a growth means something."""
ALLOWED: dict[str, tuple[float, float]] = {
    "rss": (1.3, 40.0),
    "descriptors": (1.2, 10),
    "threads": (1.2, 6),
}
"""By how much, as a factor and besides, the last quarter may lie above the second one."""


def grown(samples: Sequence[Sample]) -> list[str]:
    """What was more in the last quarter than in the second one, in words. Pure."""
    if len(samples) < LONG_ENOUGH:
        return []
    quarter, found = len(samples) // 4, []
    for what, (factor, more) in ALLOWED.items():
        for program in PROGRAMS:
            before, after = (
                median(getattr(s, what).get(program, 0) for s in part)
                for part in (samples[quarter : 2 * quarter], samples[-quarter:])
            )
            if after > before * factor and after > before + more:
                found.append(f"{what} of {program}: {before:.0f}, then {after:.0f}")
    return found
