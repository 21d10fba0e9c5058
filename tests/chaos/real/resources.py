"""What processes hold while they run: memory, descriptors, threads, connections."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PROGRAMS = {"worker": "processing.worker", "maintenance": "processing.maintenance"}
"""Children of a main process, and a word of their command lines."""
MAIN = "main"
ESTABLISHED = "01"
SOCKET = "socket:["


class Held(NamedTuple):
    """What one process holds at one moment."""

    instance: int
    program: str
    pid: int
    born: int
    """In ticks since the machine's start: two processes with one pid differ in it."""
    rss: float
    """MiB."""
    uss: float
    """MiB that it shares with nobody: what its end would set free."""
    descriptors: int
    threads: int
    connections: Mapping[str, int]
    """By service."""


@dataclass
class Sample:
    """One look at all of them."""

    at: float
    """Seconds since the epoch."""
    pending: int = 0
    """Requests without an answer."""
    held: list[Held] = field(default_factory=list)
    zombies: int = 0
    """Children that have ended and that their main process has not looked after."""

    def most(self, what: str, program: str) -> float:
        """The most that one process of a program holds; 0 where there is none."""
        return max((getattr(h, what) for h in self.held if h.program == program), default=0)


class Watch:
    """Looks every few seconds, in a thread of its own."""

    def __init__(
        self, mains: Callable[[], Mapping[int, int]], pending: Callable[[], int], every: float,
        services: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        """`mains`: pids of the main processes that live, by instance. `services`: names by port."""
        self.samples: list[Sample] = []
        self._mains, self._pending, self._every = mains, pending, every
        self._services = services or {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self.samples.append(look(self._mains(), self._services, self._pending()))


def look(mains: Mapping[int, int], services: Mapping[int, str], pending: int = 0) -> Sample:
    """Looks at these main processes and their children now."""
    sample = Sample(time.time(), pending)
    sockets = _sockets(services) if services else {}
    of_main = {pid: instance for instance, pid in mains.items()}
    for pid, process in processes().items():
        instance = of_main.get(pid, of_main.get(process.parent))
        if instance is None:
            continue
        if process.state == "Z":
            sample.zombies += 1
            continue
        # It may end at any moment.
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (program := MAIN if pid in of_main else _program(pid)) is not None:
                sample.held.append(_held(instance, program, pid, process, sockets, services))
    return sample


class ProcessSeen(NamedTuple):
    """One process of the machine, as the kernel lists it."""

    state: str
    parent: int
    born: int
    threads: int


def processes() -> dict[int, ProcessSeen]:
    """Every process, by pid."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a path object for each costs more
        if name.isdigit():
            with contextlib.suppress(OSError):
                facts = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                found[int(name)] = ProcessSeen(
                    facts[0], int(facts[1]), int(facts[19]), int(facts[17])
                )
    return found


def _program(pid: int) -> str | None:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return next((p for p, module in PROGRAMS.items() if module.encode() in words), None)


def _held(
    instance: int, program: str, pid: int, process: ProcessSeen, sockets: Mapping[str, str],
    services: Mapping[int, str],
) -> Held:  # fmt: skip
    place = Path(f"/proc/{pid}")
    kib: dict[str, int] = {}
    for line in (place / "smaps_rollup").read_text().splitlines()[1:]:
        name, amount = line.split()[:2]
        kib[name] = int(amount)
    names = []
    for link in os.listdir(place / "fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            names.append(os.readlink(place / "fd" / link))  # noqa: PTH115
    connections = dict.fromkeys(services.values(), 0)
    for name in names:
        if (service := sockets.get(name)) is not None:
            connections[service] += 1
    return Held(
        instance=instance, program=program, pid=pid, born=process.born,
        rss=kib["Rss:"] / 1024, uss=(kib["Private_Clean:"] + kib["Private_Dirty:"]) / 1024,
        descriptors=len(names), threads=process.threads, connections=connections,
    )  # fmt: skip


def _sockets(services: Mapping[int, str]) -> dict[str, str]:
    """Service by socket, as a descriptor names it, of every connection to one of them."""
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        parts = line.split()
        port = int(parts[2].rpartition(":")[2], 16)
        if parts[3] == ESTABLISHED and port in services:
            found[f"{SOCKET}{parts[9]}]"] = services[port]
    return found
