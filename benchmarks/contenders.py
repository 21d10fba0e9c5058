"""Sides that drain a topic, each by a program of its own: how they start and what they cost."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu import used
from benchmarks.frameworks_environment import NotInstalled, frameworks_python
from benchmarks.full_path_runs import (
    ROOT,
    RunNames,
    fill_topic,
    place,
    rate,
    running,
    wait_for_rows,
)
from benchmarks.report import print_table, say
from benchmarks.spread import in_turns, ratio, spread
from stack import Stack

SETTLED = 0.2
"""Part of the requests after which CPU is measured: processes have started, costs are known."""
PARTS = ("main", "worker", "maintenance", "PostgreSQL", "Valkey", "broker")


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    rate: float
    """Requests a second."""
    cpu: Mapping[str, float]
    """Part -> microseconds a request."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One side: Oncepool of a tree, or a program that runs once for each worker."""

    name: str
    program: Sequence[str] = ()
    """Module and arguments; HANDLER stands for the handler's type. None: Oncepool."""
    table: str = "requests"
    """Where its rows are."""
    tree: Path = ROOT
    kind: str | None = None
    """The type that its requests get, where that is not the handler's."""
    handlers: Sequence[str] = ()
    """Those that it has; none: all."""
    share: float = 1.0
    """Of the requests: the slow get fewer."""
    framework: bool = False
    """Whether it runs in the frameworks' environment."""

    def run(self, where: RunNames, handler: str, count: int) -> Measured:
        """Drains a topic of `count` requests."""
        count = max(100, int(count * self.share))
        fill_topic(where, self.kind or handler, count)
        with ExitStack() as stack:
            started = [stack.enter_context(one) for one in self._processes(where, handler)]
            begun, so_far = self._look(where, count * SETTLED, started)
            ended, in_all = self._look(where, count, started)
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(60)
        spent = {part: seconds - begun.get(part, 0.0) for part, seconds in ended.items()}
        each = {part: 1e6 * s / max(1, in_all - so_far) for part, s in spent.items()}
        return Measured(rate(where, self.table, count), each)

    def _processes(
        self, where: RunNames, handler: str
    ) -> Iterator[AbstractContextManager[subprocess.Popen[bytes]]]:
        if not self.program:
            yield running([sys.executable, "-m", "consumer", "run"], where.settings, self.tree)
            return
        python = str(frameworks_python()) if self.framework else sys.executable
        words = [handler if word == "HANDLER" else word for word in self.program]
        for _ in range(where.workers):
            yield running([python, "-m", *words], where.environment, self.tree)

    def _look(
        self, where: RunNames, count: float, started: Sequence[subprocess.Popen[bytes]]
    ) -> tuple[dict[str, float], int]:
        """Waits for so many rows; CPU used by then, and the rows."""
        rows = wait_for_rows(where, self.table, count, *started)
        return used([p.pid for p in started], where.stack.data), rows


def present(sides: Sequence[Contender]) -> list[Contender]:
    """Those whose programs are there; says which are not, and why."""
    try:
        if any(side.framework for side in sides):
            frameworks_python()
    except NotInstalled as error:
        missing = ", ".join(side.name for side in sides if side.framework)
        say(f"skipped: {missing}: not installed: {error}")
        return [side for side in sides if not side.framework]
    return list(sides)


def runs(
    local: Stack, handler: str, sides: Sequence[Contender], workers: int, rounds: int, count: int
) -> dict[str, list[Measured]]:
    """All sides, in turns."""
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}
    for number, side in in_turns(sides, rounds):
        with place(local, workers, side.tree) as where:
            measured = side.run(where, handler, count)
        found[side.name].append(measured)
        say(f"{handler}, round {number + 1} of {rounds}, {side.name}: {measured.rate:,.0f}/s")
    return found


def tell(handler: str, found: Mapping[str, Sequence[Measured]], caption: str) -> None:
    """Prints the tables of one handler; the first side is the one that the others are held to."""
    first = next(iter(found))
    ours = [one.rate for one in found[first]]
    print_table(
        f"{handler}: requests a second, and {first} as a multiple: median (lowest - highest)",
        ("side", "requests/s", f"{first} / it"),
        [
            (name, spread([m.rate for m in all_]).median, ratio(ours, [m.rate for m in all_]))
            for name, all_ in found.items()
        ],
        caption,
    )
    print_table(
        f"{handler}: CPU microseconds a request, medians",
        ("side", *PARTS, "all"),
        [
            (
                name,
                *(spread([m.cpu.get(part, 0.0) for m in all_]).median for part in PARTS),
                spread([sum(m.cpu.values()) for m in all_]).median,
            )
            for name, all_ in found.items()
        ],
    )
