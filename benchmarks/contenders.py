"""Sides that do the work of a topic, each by a program of its own: their start, their cost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu import per_request, used
from benchmarks.frameworks_environment import NotInstalled, frameworks_python
from benchmarks.full_path_runs import ROOT, RunNames, rate_within, running
from benchmarks.load import HeldLoad
from benchmarks.measured import Measured, Span
from benchmarks.membership import until_shared_out
from benchmarks.report import say
from benchmarks.signalled import BEGIN
from benchmarks.tally import counted, marks, rate_between
from benchmarks.watch import ProgressWatch, RowsWatch, TallyWatch

WARM_UP, WARM_LEAST = 0.1, 24
"""Of the requests, so many more, and at least so many, that are done before: durations of types are
learnt, connections made."""
SETTLED, FULL = 0.1, 0.9
"""The rate is that between these parts of the requests: before, the first are on their way; after,
some processes have no work left."""
TALLIED = ""
"""Instead of a table: the handlers count."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One side: Oncepool of a tree, or a program that runs once for each worker."""

    name: str
    program: Sequence[str] = ()
    """Module and arguments; HANDLER, COUNT and WARM stand for the handler's type and the requests
    of each process, WORKERS for the number of workers. None: Oncepool."""
    table: str = "requests"
    """Where its rows are, or TALLIED."""
    app: str = "benchmarks.full_path_app:app"
    """Oncepool's handlers."""
    module: str = "consumer"
    """Oncepool's program, or one that runs it watched."""
    tree: Path = ROOT
    kind: str | None = None
    """The type that its requests get, where that is not the handler's."""
    handlers: Sequence[str] = ()
    """Those that it has; none: all."""
    share: float = 1.0
    """Of the requests: the slow get fewer, and the quick more, so that none is done at once."""
    framework: bool = False
    """Whether it runs in the frameworks' environment."""
    reads: bool = True
    """Whether there is a topic to read; else it waits for signals."""
    once: bool = False
    """Whether its program runs once, and not once for each worker."""
    ordered: bool = False
    """Whether ids are ordered by time."""
    instances: int = 1
    """Of Oncepool, in one group."""

    def run(self, where: RunNames, handler: str, count: int) -> Measured:
        """Does `count` requests."""
        return self.watched(where, handler, count)[0]

    def watched(self, where: RunNames, handler: str, count: int) -> tuple[Measured, Span]:
        """The same, and when."""
        each = 1 if self.reads else where.workers  # who reads nothing is told how much is its own
        count = max(100, int(count * self.share)) // each * each
        warm = max(WARM_LEAST, int(count * WARM_UP)) // each * each
        with ExitStack() as stack:
            load = self._load(where, handler)
            started = [
                stack.enter_context(one) for one in self._processes(where, handler, count, warm)
            ]  # fmt: skip
            watch = stack.enter_context(closing(self._watch(where)))
            if load is not None:
                until_shared_out(where.stack.kafka, where.name, *started)
                load.write(warm)
                load.let_in()
            before = watch.until(warm, started)
            first = self._counted(where, before)
            if load is not None:
                load.write(count)
            begun = used([p.pid for p in started], where.stack.data, watch.own)
            at = time.monotonic()
            self._begin(load, started)
            done = watch.until(warm + count, started)
            ended = used([p.pid for p in started], where.stack.data, watch.own)
            span = Span(at, time.monotonic())
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(60)
        all_of_it = self._counted(where, done) - first
        begin, end = (first + part * all_of_it for part in (SETTLED, FULL))
        if self.table == TALLIED:
            rate = rate_between(marks(where.tally), begin, end)
        else:
            rate = rate_within(where, self.table, int(begin), int(end))
        return Measured(rate, per_request(begun, ended, all_of_it)), span

    def _counted(self, where: RunNames, requests: int) -> int:
        """What so many requests, all that are done, have counted."""
        return counted(where.tally).done if self.table == TALLIED else requests

    def _load(self, where: RunNames, handler: str) -> HeldLoad | None:
        if not self.reads:
            return None
        kind = self.kind or handler
        return HeldLoad(where.stack.kafka, where.name, kind, ordered=self.ordered)

    def _watch(self, where: RunNames) -> ProgressWatch:
        if self.table != TALLIED:
            return RowsWatch(where, self.table)
        return TallyWatch(where.tally)

    def _begin(self, load: HeldLoad | None, started: Sequence[subprocess.Popen[bytes]]) -> None:
        if load is not None:
            load.let_in()
            return
        for process in started:
            process.send_signal(BEGIN)

    def _processes(
        self, where: RunNames, handler: str, count: int, warm: int
    ) -> Iterator[AbstractContextManager[subprocess.Popen[bytes]]]:
        if not self.program:
            settings = {**where.settings, "ONCEPOOL_APP": self.app}
            for _ in range(self.instances):
                yield running([sys.executable, "-m", self.module, "run"], settings, self.tree)
            return
        python = str(frameworks_python()) if self.framework else sys.executable
        known = {
            "HANDLER": handler,
            "COUNT": str(count // where.workers),
            "WARM": str(warm // where.workers),
            "WORKERS": str(where.workers),
        }
        words = [known.get(word, word) for word in self.program]
        for _ in range(1 if self.once else where.workers):
            yield running([python, "-m", *words], where.environment, self.tree)


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
