"""Looks that a soak takes beside its load: processes without a parent, transactions left open."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psycopg

from tests.chaos.real.members import Members
from tests.chaos.real.place import Place
from tests.chaos.real.resources import processes

EVERY = 1.0
OPEN = """
SELECT application_name, pid, state, extract(epoch FROM clock_timestamp() - state_change)::float
FROM pg_stat_activity WHERE datname = 'chaos' AND application_name LIKE 'oncepool%'
"""
IDLE = "idle in transaction"


class SessionsSeen(NamedTuple):
    """What the database says of our sessions at one moment."""

    at: float
    sessions: int
    idle: float
    """Seconds for which the transaction that does nothing the longest has done nothing."""
    who: str


@dataclass
class Orphans:
    """Processes whose parent is gone, by (pid, birth), with how long they outlived it. Pure."""

    longest: dict[tuple[int, int], float] = field(default_factory=dict)
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    _first: dict[tuple[int, int], float] = field(default_factory=dict)

    def look(self, now: float, found: Mapping[tuple[int, int], str]) -> None:
        """`found`: command lines of those that are there now."""
        for key, name in found.items():
            self.names[key] = name
            self.longest[key] = now - self._first.setdefault(key, now)

    def beyond(self, limit: float) -> list[str]:
        """Those that were seen for longer than this, in words."""
        return [
            f"process {pid} lived {seconds:.1f} s without its parent: {self.names[pid, born]}"
            for (pid, born), seconds in self.longest.items() if seconds > limit
        ]  # fmt: skip


class Vigil:
    """Looks every second, in a thread of its own."""

    def __init__(self, place: Place, name: str) -> None:
        """`name`: the schema, which the environment of every process of the episode names."""
        self.orphans = Orphans()
        self.seen: list[SessionsSeen] = []
        self.failed = 0
        """Looks that the database did not answer."""
        self.killed = 0
        """Main processes that were killed."""
        self._place = place
        self._mark = f"CHAOS_SCHEMA={name}\0".encode()

    @contextlib.contextmanager
    def over(self, members: Members) -> Iterator[None]:
        """Looks at these as long as the block lasts."""
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(members, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(20)
            self.killed = sum(member.how == "killed" for member in members.all)

    def _run(self, members: Members, ended: threading.Event) -> None:
        while not ended.wait(EVERY):
            self.orphans.look(time.monotonic(), self._orphans(members))
            try:
                self.seen.append(sessions_seen(time.time(), self._place.query(OPEN)))
            except psycopg.Error:
                self.failed += 1

    def _orphans(self, members: Members) -> dict[tuple[int, int], str]:
        # The dead first: whoever is listed afterwards with a parent among them has outlived it.
        mains = {member.pid for member in list(members.all) if member.alive}
        found = {}
        for pid, process in processes().items():
            if pid in mains or process.parent in mains or process.parent == os.getpid():
                continue
            if process.state != "Z":
                with contextlib.suppress(OSError):
                    if self._mark in Path(f"/proc/{pid}/environ").read_bytes():
                        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                        found[pid, process.born] = b" ".join(words).decode(errors="replace")
        return found


def sessions_seen(at: float, rows: list[tuple[str, int, str, float]]) -> SessionsSeen:
    """The same in figures. Pure."""
    idle = [
        (seconds, f"{name}, backend {pid}")
        for name, pid, state, seconds in rows if (state or "").startswith(IDLE)
    ]  # fmt: skip
    longest, who = max(idle, default=(0.0, ""))
    return SessionsSeen(at, len(rows), longest, who)
