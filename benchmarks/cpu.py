"""What CPU each process of a run has used, by what it is."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from stack import processes

SERVICES = {"postgres": "PostgreSQL", "valkey-server": "Valkey", "java": "broker"}
PARTS = {"processing.worker": "worker", "processing.maintenance": "maintenance"}


def used(roots: list[int], services: Path) -> dict[str, float]:
    """CPU seconds so far of these processes with their children, and of a stack's services."""
    seconds: dict[str, float] = defaultdict(float)
    for process in processes.processes_in(services):
        with suppress(psutil.NoSuchProcess):  # a connection that has just ended
            _add(seconds, SERVICES.get(process.name(), "other"), process)
    for root in map(psutil.Process, roots):
        _add(seconds, "main", root)
        for child in root.children(recursive=True):
            _add(seconds, part_of(child), child)
    return seconds


def part_of(process: psutil.Process) -> str:
    """What a process of Oncepool is, by its command line."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return "other"
    return next((part for name, part in PARTS.items() if name in words), "other")


def _add(seconds: dict[str, float], part: str, process: psutil.Process) -> None:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return
    seconds[part] += times.user + times.system
