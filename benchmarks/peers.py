"""Oncepool against the consumer of an afternoon, and against another commit of itself.

    scripts/bench peers [--quick] [--rounds N] [--workers N] [--against REV]

All sides find the same requests in a topic and do the same work: a row that keeps a second copy
from running, the handler's effect, a status in Redis. The afternoon's consumer runs in as many
processes as Oncepool has workers. Sides take turns; each round gives one ratio, and CPU per request
of every process on the machine that has a part in it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu import used
from benchmarks.full_path_runs import (
    ROOT,
    RunNames,
    fill_topic,
    place,
    rate,
    running,
    wait_for_rows,
)
from benchmarks.machine import facts
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from stack import Stack

ROUNDS = 5
COUNT = 60_000
SETTLED = 0.2
"""Part of the requests after which CPU is measured: processes have started, costs are known."""
HANDLERS = ("bench.noop", "bench.insert", "bench.batch")
OURS, AFTERNOON, PIPELINED = "Oncepool", "afternoon", "afternoon, pipeline"
PIPELINED_OURS = "Oncepool, pipeline"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    rate: float
    """Requests a second."""
    cpu: Mapping[str, float]
    """Part -> microseconds a request."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One side."""

    name: str
    table: str
    """Where its rows are."""
    tree: Path = ROOT
    pipeline: bool = False
    handlers: Sequence[str] = HANDLERS

    def run(self, where: RunNames, handler: str, count: int) -> Measured:
        """Drains a topic of `count` requests."""
        kind = "bench.pipelined" if self.pipeline and self.table == "requests" else handler
        fill_topic(where, kind, count)
        with ExitStack() as stack:
            started = [stack.enter_context(one) for one in self._processes(where, handler)]
            begun, so_far = _look(where, self.table, count * SETTLED, started)
            ended, in_all = _look(where, self.table, count, started)
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(60)
        spent = {part: seconds - begun.get(part, 0.0) for part, seconds in ended.items()}
        each = {part: 1e6 * s / (in_all - so_far) for part, s in spent.items()}
        return Measured(rate(where, self.table, count), each)

    def _processes(
        self, where: RunNames, handler: str
    ) -> Iterator[AbstractContextManager[subprocess.Popen[bytes]]]:
        if self.table == "requests":
            yield running([sys.executable, "-m", "consumer", "run"], where.settings, self.tree)
            return
        how = "pipeline" if self.pipeline else "wait"
        command = [sys.executable, "-m", "benchmarks.afternoon", handler, how]
        for _ in range(where.workers):
            yield running(command, where.environment, self.tree)


def _look(
    where: RunNames, table: str, count: float, started: Sequence[subprocess.Popen[bytes]]
) -> tuple[dict[str, float], int]:
    """Waits for so many rows; CPU used by then, and the rows."""
    rows = wait_for_rows(where, table, count, *started)
    return used([p.pid for p in started], where.stack.data), rows


@contextmanager
def other_tree(rev: str) -> Iterator[Path]:
    """Another commit's files."""
    with tempfile.TemporaryDirectory(prefix="oncepool-peer-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), rev], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, a third of the work")
    parser.add_argument("--rounds", type=int, help=f"rounds (default: {ROUNDS})")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--against", metavar="REV", help="another commit as one more side")
    parser.add_argument("--handler", choices=HANDLERS, action="append", help="only this one")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    count = COUNT // 3 if options.quick else COUNT
    peers = [
        Contender(OURS, "requests"),
        Contender(PIPELINED_OURS, "requests", pipeline=True, handlers=("bench.insert",)),
        Contender(AFTERNOON, "plain"),
        Contender(PIPELINED, "plain", pipeline=True, handlers=("bench.insert",)),
    ]
    with ExitStack() as stack:
        if options.against:
            tree = stack.enter_context(other_tree(options.against))
            peers.append(Contender(options.against, "requests", tree=tree))
        local = stack.enter_context(services())
        machine = facts(local)
        found = {}
        for handler in options.handler or HANDLERS:
            sides = [peer for peer in peers if handler in peer.handlers]
            found[handler] = runs(local, handler, sides, options.workers, rounds, count)
            tell(handler, found[handler], machine.line)
    if not options.quick:
        write_json(f"peers-{options.workers}", machine, {"count": count, "found": found})


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
    """Prints the tables of one handler."""
    ours = [one.rate for one in found[OURS]]
    print_table(
        f"{handler}: requests a second, and Oncepool as a multiple: median (lowest - highest)",
        ("side", "requests/s", "Oncepool / it"),
        [
            (name, spread([m.rate for m in all_]).median, ratio(ours, [m.rate for m in all_]))
            for name, all_ in found.items()
        ],
        caption,
    )
    parts = ("main", "worker", "maintenance", "PostgreSQL", "Valkey", "broker")
    print_table(
        f"{handler}: CPU microseconds a request, medians",
        ("side", *parts, "all"),
        [
            (
                name,
                *(spread([m.cpu.get(part, 0.0) for m in all_]).median for part in parts),
                spread([sum(m.cpu.values()) for m in all_]).median,
            )
            for name, all_ in found.items()
        ],
    )


if __name__ == "__main__":
    main()
