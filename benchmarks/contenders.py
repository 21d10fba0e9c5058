"""Sides that do the work of a topic, each by a program of its own: their start, their cost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu import used
from benchmarks.frameworks_environment import NotInstalled, frameworks_python
from benchmarks.full_path_runs import (
    LONGEST,
    POLL,
    ROOT,
    RunNames,
    fill_topic,
    rate,
    running,
    wait_for_rows,
)
from benchmarks.report import say
from benchmarks.tally import marks, rate_between

SETTLED, FULL = 0.2, 0.9
"""What is measured lies between these parts of the requests: before, processes start and costs are
learnt; after, some have no work left. With rows the end is the last one."""
LEAST = 0.1
"""Part of the requests that must lie between two looks at CPU."""
TALLIED = ""
"""Instead of a table: the handlers count."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    rate: float
    """Requests a second, or whatever unit is counted."""
    cpu: Mapping[str, float]
    """Part -> microseconds a request; empty where the run was too short to tell."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One side: Oncepool of a tree, or a program that runs once for each worker."""

    name: str
    program: Sequence[str] = ()
    """Module and arguments; HANDLER and COUNT stand for the handler's type and the requests of each
    process. None: Oncepool."""
    table: str = "requests"
    """Where its rows are, or TALLIED."""
    app: str = "benchmarks.full_path_app:app"
    """Oncepool's handlers."""
    tree: Path = ROOT
    kind: str | None = None
    """The type that its requests get, where that is not the handler's."""
    handlers: Sequence[str] = ()
    """Those that it has; none: all."""
    share: float = 1.0
    """Of the requests: the slow get fewer."""
    framework: bool = False
    """Whether it runs in the frameworks' environment."""
    reads: bool = True
    """Whether there is a topic to read."""
    ordered: bool = False
    """Whether ids are ordered by time."""
    instances: int = 1
    """Of Oncepool, in one group."""

    def run(self, where: RunNames, handler: str, count: int, unit: float = 1.0) -> Measured:
        """Does `count` requests; where it is TALLIED, each of about `unit` counts."""
        count = max(100, int(count * self.share)) if self.share < 1 else count
        count -= 0 if self.reads else count % where.workers
        if self.reads:
            fill_topic(where, self.kind or handler, count, ordered=self.ordered)
        last = FULL * count * unit if self.table == TALLIED else count
        with ExitStack() as stack:
            started = [
                stack.enter_context(one) for one in self._processes(where, handler, count)
            ]  # fmt: skip
            begun, so_far = self._look(where, count * unit * SETTLED, started)
            ended, in_all = self._look(where, last, started)
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(60)
        each = {}
        if in_all - so_far >= LEAST * count * unit:  # else nobody looked in time
            spent = {part: seconds - begun.get(part, 0.0) for part, seconds in ended.items()}
            each = {part: 1e6 * s / (in_all - so_far) for part, s in spent.items()}
        if self.table != TALLIED:
            return Measured(rate(where, self.table, count), each)
        return Measured(rate_between(marks(where.tally), count * unit * SETTLED, last), each)

    def _processes(
        self, where: RunNames, handler: str, count: int
    ) -> Iterator[AbstractContextManager[subprocess.Popen[bytes]]]:
        if not self.program:
            settings = {**where.settings, "ONCEPOOL_APP": self.app}
            for _ in range(self.instances):
                yield running([sys.executable, "-m", "consumer", "run"], settings, self.tree)
            return
        python = str(frameworks_python()) if self.framework else sys.executable
        known = {"HANDLER": handler, "COUNT": str(count // where.workers)}
        words = [known.get(word, word) for word in self.program]
        for _ in range(where.workers):
            yield running([python, "-m", *words], where.environment, self.tree)

    def _look(
        self, where: RunNames, count: float, started: Sequence[subprocess.Popen[bytes]]
    ) -> tuple[dict[str, float], int]:
        """Waits until so much is done; CPU used by then, and how much that was."""
        if self.table == TALLIED:
            done = wait_for_calls(where, count, *started)
        else:
            done = wait_for_rows(where, self.table, count, *started)
        return used([p.pid for p in started], where.stack.data), done


def wait_for_calls(where: RunNames, count: float, *processes: subprocess.Popen[bytes]) -> int:
    """Returns when so much is counted: how much. Raises where that does not come about."""
    end = time.monotonic() + LONGEST
    while True:
        over = any(p.poll() is not None for p in processes)
        found = marks(where.tally)
        if found and found[-1].done >= count:
            return found[-1].done
        if over or time.monotonic() > end:
            raise RuntimeError(f"{count:g} were not done; {found[-1].done if found else 0} were")
        time.sleep(POLL)


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
