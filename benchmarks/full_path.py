"""Oncepool against the plain design, and against the database and Redis alone.

    scripts/bench full_path [--quick] [--rounds N] [--workers N] [--against REV]

Sides: Oncepool; the plain design with a commit per poll, and per message; the bare limit. Each runs
the same handler on the same services: nothing at all, one INSERT, one COPY for a batch. Sides take
turns in one run, so that what else the machine does falls on all of them; each round gives one
ratio per pair.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.full_path_sides import bare, oncepool, plain
from benchmarks.machine import Machine, facts
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table
from benchmarks.services import services
from benchmarks.sides import Found, Side, keep, measure, rates_of, tell_cpu, tell_rates, with_aim
from benchmarks.spread import ratio

ROUNDS = 5
HANDLERS = {"bench.noop": "no-op", "bench.insert": "one INSERT", "bench.batch": "batch, COPY"}
OURS = "Oncepool"
PER_POLL = "plain, commit per poll"
PER_MESSAGE = "plain, commit per message"
BARE = "bare limit"
SIDES = (
    Side(OURS, oncepool, 100_000),
    Side(PER_POLL, plain("poll"), 10_000),
    Side(PER_MESSAGE, plain("message"), 3_000),
    Side(BARE, bare, 100_000),
)
AIMS = {
    ("bench.noop", PER_POLL): 10.0,
    ("bench.insert", PER_POLL): 10.0,
    ("bench.batch", PER_POLL): 20.0,
    ("bench.noop", BARE): 0.85,
    ("bench.insert", BARE): 0.85,
    ("bench.batch", BARE): 0.85,
}
"""What Oncepool wants to reach, as a ratio to the other side."""


def main() -> None:
    parser = parser_of(__doc__, "one round, a quarter of the work", ROUNDS)
    parser.add_argument("--workers", type=int, help="worker processes of each (cores - 1)")
    add_option(parser)
    options = options_of(parser, "workers")
    rounds = rounds_of(options, ROUNDS)
    with other_tree(options.against) as tree, services() as stack:
        machine = facts(stack, "kafka-python")
        # The broker and whoever reads from it need a core, too.
        workers = options.workers or max(1, machine.cores - 1)
        divisor = 4 if options.quick else 1
        sides = [replace(side, count=side.count // divisor) for side in SIDES]
        if tree is not None:
            sides.append(replace(sides[0], name=options.against, tree=tree))
        found = measure(stack, HANDLERS, sides, workers, rounds)
    tell(machine, found, workers, rounds, whole=options.whole)


def tell(machine: Machine, found: Found, workers: int, rounds: int, *, whole: bool) -> None:
    """Prints the tables; a whole run is written down and drawn, too."""
    rates = rates_of(found)
    ratios = {
        handler: {side: ratio(sides[OURS], values) for side, values in sides.items()}
        for handler, sides in rates.items()
    }
    names = list(next(iter(rates.values())))
    what = f"{workers} worker{'s'[: workers > 1]}, median of {rounds}"
    tell_rates(rates, HANDLERS, what, machine.line)
    print_table(
        "Oncepool as a multiple of the others: median (lowest - highest), and what it should be",
        ("handler", *names[1:]),
        [
            (name, *(with_aim(ratios[key][s], AIMS.get((key, s))) for s in names[1:]))
            for key, name in HANDLERS.items()
        ],
    )
    tell_cpu(found, HANDLERS)
    if whole:
        results = {
            "workers": workers,
            "rounds": rounds,
            "requests": {side.name: side.count for side in SIDES},
            "oncepool_as_multiple": ratios,
        }
        title = "The full path: requests a second"
        keep(f"full_path-{workers}", title, machine, results, found, HANDLERS)


if __name__ == "__main__":
    main()
