"""How rates grow with workers and with consumers, and what a hundred consumers would meet.

    scripts/bench scale [--quick] [--rounds N] [--case NAME] [--against REV]

One instance with 1, 2 and 4 workers, and 2 and 4 instances with one worker each, in turns. All
share the cores of one machine, so no rate can grow beyond these; what a request costs each process
is what carries over. From the costs of one instance with two workers a model
(benchmarks/scale_model.py) says what many consumers on machines of their own do, and which shared
service is full first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.contenders import Contender
from benchmarks.cpu import PARTS, medians
from benchmarks.full_path_runs import place
from benchmarks.machine import facts
from benchmarks.measured import Measured
from benchmarks.options import add_count, count_of, options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.scale_model import CORES, group_rate, limits
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from stack import Stack

ROUNDS = 5
COUNT = 100_000
CASES = {"no-op": "bench.noop", "one INSERT": "bench.insert"}
SIDES = {"1 x 1": (1, 1), "1 x 2": (1, 2), "1 x 4": (1, 4), "2 x 1": (2, 1), "4 x 1": (4, 1)}
"""Instances x workers of each."""
BASE, MODELLED = "1 x 1", "1 x 2"
CONSUMERS, WORKERS = (1, 10, 30, 100), 8
"""Of the model."""


def main() -> None:
    parser = parser_of(__doc__, "one round, a third of the work", ROUNDS)
    add_count(parser, COUNT)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = count_of(options, COUNT)
    cases = {name: CASES[name] for name in options.case or CASES}
    with other_tree(options.against) as tree, services() as stack:
        machine = facts(stack)
        sides = [Contender(name, instances=number) for name, (number, _) in SIDES.items()]
        if tree is not None:
            sides += [replace(s, name=f"{s.name}, {options.against}", tree=tree) for s in sides]
        found = {
            name: measure(stack, handler, sides, rounds, count) for name, handler in cases.items()
        }
    for name, measured in found.items():
        tell(name, measured, machine.line)
    costs = {
        name: cost
        for name, measured in found.items()
        if (cost := cost_of(measured[MODELLED]))  # else they were too short to tell
    }
    for name, cost in costs.items():
        tell_model(name, cost)
    if options.whole:
        results = {
            "count": count, "rounds": rounds, "found": found, "costs": costs,
            "modelled": {name: modelled(cost) for name, cost in costs.items()},
            "modelled_cores": CORES, "modelled_workers": WORKERS,
        }  # fmt: skip
        write_json("scale", machine, results)
    first = {name: limits(cost, WORKERS)[0] for name, cost in costs.items()}
    last = [f"{n}: {one.service} at {one.consumers:.1f} consumers" for n, one in first.items()]
    say(f"scale: full first, of services that all share: {'; '.join(last) or 'not known'}")


def measure(
    stack: Stack, handler: str, sides: Sequence[Contender], rounds: int, count: int
) -> dict[str, list[Measured]]:
    """All sides, in turns."""
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}
    for number, side in in_turns(sides, rounds):
        _, workers = SIDES[side.name.partition(",")[0]]
        with place(stack, workers, side.tree) as where:
            measured = side.run(where, handler, count)
        found[side.name].append(measured)
        say(f"{handler}, round {number + 1} of {rounds}, {side.name}: {measured.rate:,.0f}/s")
    return found


def cost_of(runs: Sequence[Measured]) -> dict[str, float]:
    """Microseconds a request, part by part: medians of the rounds; empty where none could tell."""
    found = medians([run.cpu for run in runs])
    return {part: cost for part in PARTS if (cost := found[part]) is not None}


def modelled(cost: Mapping[str, float]) -> dict[str, float]:
    """Consumers -> requests a second."""
    return {str(number): group_rate(cost, number, WORKERS) for number in CONSUMERS}


def tell(name: str, found: Mapping[str, Sequence[Measured]], caption: str) -> None:
    """Prints the table of one handler."""
    base = [m.rate for m in found[BASE]]
    print_table(
        f"{name}: requests a second by instances x workers: median (lowest - highest)",
        ("side", "requests/s", f"/ {BASE}", *(f"{part} us" for part in PARTS)),
        [
            (
                side,
                spread([m.rate for m in runs]).median,
                ratio([m.rate for m in runs], base),
                *(cost_of(runs).get(part) for part in PARTS),
            )
            for side, runs in found.items()
        ],
        caption,
    )


def tell_model(name: str, cost: Mapping[str, float]) -> None:
    """Prints what the model says of one handler."""
    print_table(
        f"{name}: model of consumers with {WORKERS} workers and cores of their own",
        ("consumers", "requests/s"),
        [(number, rate) for number, rate in modelled(cost).items()],
    )
    print_table(
        f"{name}: where shared services are full",
        ("service", "cores", "requests/s", "consumers"),
        [
            (one.service, CORES[one.service], one.rate, one.consumers)
            for one in limits(cost, WORKERS)
        ],
    )


if __name__ == "__main__":
    main()
