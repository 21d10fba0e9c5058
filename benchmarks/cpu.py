"""What CPU each process of a run has used, by what it is.

The system counts in steps of 10 ms a process. What ended processes have used is counted by the one
that started them: PostgreSQL's backends by its first process, and workers by their main process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

from stack import processes

SERVICES = {"postgres": "PostgreSQL", "valkey-server": "Valkey", "java": "broker"}
CHILDREN = {
    "processing.worker": "worker",
    "processing.maintenance": "maintenance",
    "benchmarks.frameworks.arroyo_app": "worker",
    "--multiprocessing-fork": "worker",
}
"""What a child process is, by a word of its command line."""
PARTS = ("main", "worker", "maintenance", "PostgreSQL", "Valkey", "broker")
LEAST = 0.5
"""Seconds of all processes below which nothing is told: some twenty processes, 10 ms each."""


def used(roots: list[int], services: Path, without: Collection[int] = ()) -> dict[str, float]:
    """CPU seconds so far of these processes with their children, and of a stack's services.

    `without`: processes that do not count, as the backend of who looks.
    """
    seconds: dict[str, float] = defaultdict(float)
    for process in processes.processes_in(services):
        if process.pid not in without:
            part = SERVICES.get(process.name(), "other")
            _add(seconds, part, process, ended=part)
    for pid in roots:
        with suppress(psutil.NoSuchProcess):  # what has gone can't be told, which per_request sees
            root = psutil.Process(pid)
            _add(seconds, "main", root, ended="other")
            for child in root.children(recursive=True):
                _add(seconds, part_of(child), child, ended="other")
    return seconds


def part_of(process: psutil.Process) -> str:
    """What a child process is, by its command line."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return "other"
    return next((part for name, part in CHILDREN.items() if name in words), "other")


def _add(seconds: dict[str, float], part: str, process: psutil.Process, *, ended: str) -> None:
    """`ended`: what its children were that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return
    seconds[part] += times.user + times.system
    seconds[ended] += times.children_user + times.children_system


def per_request(
    before: Mapping[str, float], after: Mapping[str, float], requests: float
) -> dict[str, float]:
    """Part -> microseconds for each; empty where that cannot be told.

    That is so where too little was used, and where a process has gone whose CPU nobody counts.
    """
    spent = {
        part: after.get(part, 0.0) - before.get(part, 0.0) for part in before.keys() | after.keys()
    }
    if requests <= 0 or sum(spent.values()) < LEAST or min(spent.values()) < 0:
        return {}
    return {part: 1e6 * seconds / requests for part, seconds in spent.items()}


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Of what each run has of each of PARTS, and of `all`; None where no run could tell."""
    told = [run for run in runs if run]
    if not told:
        return dict.fromkeys((*PARTS, "all"))
    found: dict[str, float | None] = {p: median([run.get(p, 0.0) for run in told]) for p in PARTS}
    return {**found, "all": median([sum(run.values()) for run in told])}
