"""Where a request's time goes: CPU by process and, in the main process and the workers, by step.

    scripts/bench budget [--quick] [--rounds N] [--workers N] [--against REV]

A no-op handler with a row and a status for each request, all of which are there. Both processes
note where they are while they use their CPU (benchmarks/sampling.py); which step that is says
benchmarks/budget_steps.py. With `against ec01882` the same of Oncepool as of that commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import sampling
from benchmarks.budget_steps import steps_of_process
from benchmarks.contenders import Contender
from benchmarks.cpu import PARTS, medians
from benchmarks.full_path_runs import place
from benchmarks.machine import facts
from benchmarks.options import add_count, add_workers, count_of, options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.page_budget import steps_of
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns
from stack import Stack

ROUNDS = 5
COUNT = 150_000
KIND = "bench.noop"
Noted = Mapping[str, sampling.Sampled]
"""Process -> what it noted."""
OURS = Contender("Oncepool", app="benchmarks.watched_app:app", module="benchmarks.watched_main")


@dataclass(frozen=True, slots=True)
class BudgetRun:
    """One run of one side. Microseconds of CPU for each request."""

    rate: float
    cpu: Mapping[str, float]
    """By process; empty where that could not be told."""
    steps: Mapping[str, Mapping[str, float]]
    """Main and worker, each by step."""
    functions: Mapping[str, Mapping[str, float]]
    """The same by function, as far as their main threads were in one of the project's."""


def main() -> None:
    parser = parser_of(__doc__, "one round, a third of the work", ROUNDS)
    add_count(parser, COUNT)
    add_workers(parser)
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = count_of(options, COUNT)
    with other_tree(options.against) as tree, services() as stack:
        sides = [OURS]
        if tree is not None:
            sides.append(replace(OURS, name=options.against, tree=tree))
        machine = facts(stack)
        say("warming up")
        run(stack, OURS, options.workers, count // 2)
        found: dict[str, list[BudgetRun]] = {side.name: [] for side in sides}
        for number, side in in_turns(sides, rounds):
            one = run(stack, side, options.workers, count)
            found[side.name].append(one)
            say(f"round {number + 1} of {rounds}, {side.name}: {one.rate:,.0f} requests/s")
    tell(found, machine.line)
    if options.whole:
        results = {"workers": options.workers, "rounds": rounds, "count": count, "found": found}
        write_json("budget", machine, results)


def run(stack: Stack, side: Contender, workers: int, count: int) -> BudgetRun:
    """One side, once."""
    with TemporaryDirectory(prefix="oncepool-samples-") as folder:
        os.environ[sampling.FOLDER] = folder
        try:
            with place(stack, workers, side.tree) as where:
                measured, span = side.watched(where, KIND, count)
        finally:
            del os.environ[sampling.FOLDER]
        noted = sampling.sampled(Path(folder), *span)
    # Of another commit the steps are compared: its functions are not today's.
    functions = by_function(measured.cpu, noted) if side is OURS else {}
    return BudgetRun(measured.rate, measured.cpu, by_step(measured.cpu, noted), functions)


def by_step(cpu: Mapping[str, float], noted: Noted) -> dict[str, dict[str, float]]:
    """What each process used, shared out among its steps by what it noted."""
    return {
        process: _of(cpu.get(process, 0.0), one.shares(steps_of_process(process)))
        for process, one in noted.items()
    }


def by_function(cpu: Mapping[str, float], noted: Noted) -> dict[str, dict[str, float]]:
    """The same among functions."""
    return {
        process: {
            place: cost
            for place, cost in _of(cpu.get(process, 0.0), one.shares(str)).items()
            if place in one.places and place != sampling.NOWHERE
        }
        for process, one in noted.items()
    }


def _of(cost: float, shares: Mapping[str, float]) -> dict[str, float]:
    return {name: share * cost for name, share in shares.items()}


def tell(found: Mapping[str, Sequence[BudgetRun]], caption: str) -> None:
    """Prints the tables."""
    print_table(
        "CPU microseconds for each request, medians",
        ("side", *PARTS, "all"),
        [(side, *medians([run.cpu for run in runs]).values()) for side, runs in found.items()],
        caption,
    )
    for process in ("main", "worker"):
        steps = {side: steps_of([r.steps for r in runs], process) for side, runs in found.items()}
        names = dict.fromkeys(name for one in steps.values() for name in one)
        print_table(
            f"{process}: CPU microseconds for each request by step, medians",
            ("step", *steps),
            [(name, *(one.get(name) for one in steps.values())) for name in names],
        )


if __name__ == "__main__":
    main()
