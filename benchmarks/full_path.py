"""Oncepool against the plain design, and against the database and Redis alone.

    scripts/bench full_path [--quick] [--rounds N] [--workers N]

Sides: Oncepool; the plain design with a commit per poll, and per message; the bare limit. Each runs
the same handler on the same services: nothing at all, one INSERT, one COPY for a batch. Sides take
turns in one run, so that what else the machine does falls on all of them; each round gives one
ratio per pair.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.full_path_runs import Place, bare, oncepool, place, plain
from benchmarks.machine import Machine, facts
from benchmarks.report import RESULTS, print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import Spread, in_turns, ratio, spread
from stack import Stack

ROUNDS = 5
HANDLERS = {"bench.noop": "no-op", "bench.insert": "one INSERT", "bench.batch": "batch, COPY"}


@dataclass(frozen=True, slots=True)
class Side:
    """One design."""

    name: str
    run: Callable[[Place, str, int], float]
    count: int
    """Requests of one run: so many that start-up is past, so few that a round stays short."""


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

Rates = dict[str, dict[str, list[float]]]
"""Handler -> side -> requests a second, a value per round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, a quarter of the work")
    parser.add_argument("--rounds", type=int, help=f"rounds (default: {ROUNDS})")
    parser.add_argument("--workers", type=int, help="worker processes of each (cores - 1)")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    with services() as stack:
        machine = facts(stack, "kafka-python")
        # The broker and whoever reads from it need a core, too.
        workers = options.workers or max(1, machine.cores - 1)
        rates = measure(stack, workers, rounds, 4 if options.quick else 1)
    tell(machine, rates, workers, rounds, keep=not options.quick)


def measure(stack: Stack, workers: int, rounds: int, divisor: int) -> Rates:
    """All sides with all handlers, in turns."""
    rates: Rates = {handler: {side.name: [] for side in SIDES} for handler in HANDLERS}
    for handler, name in HANDLERS.items():
        for number, side in in_turns(SIDES, rounds):
            with place(stack, workers) as where:
                found = side.run(where, handler, side.count // divisor)
            rates[handler][side.name].append(found)
            say(f"{name}, round {number + 1} of {rounds}, {side.name}: {found:,.0f} requests/s")
    return rates


def tell(machine: Machine, rates: Rates, workers: int, rounds: int, *, keep: bool) -> None:
    """Prints the tables; a whole run is written down and drawn, too."""
    speeds = {
        handler: {side: spread(values) for side, values in sides.items()}
        for handler, sides in rates.items()
    }
    ratios = {
        handler: {side: ratio(sides[OURS], values) for side, values in sides.items()}
        for handler, sides in rates.items()
    }
    columns = ("handler", *(side.name for side in SIDES))
    print_table(
        f"Requests a second, {workers} worker{'s'[: workers > 1]}, median of {rounds}",
        columns,
        [(name, *(one.median for one in speeds[key].values())) for key, name in HANDLERS.items()],
        machine.line,
    )
    print_table(
        "Oncepool as a multiple of the others: median (lowest - highest), and what it should be",
        ("handler", *(side.name for side in SIDES[1:])),
        [
            (name, *(_with_aim(key, side.name, ratios[key][side.name]) for side in SIDES[1:]))
            for key, name in HANDLERS.items()
        ],
    )
    if keep:
        results = {
            "workers": workers,
            "requests": {side.name: side.count for side in SIDES},
            "requests_per_second": rates,
            "oncepool_as_multiple": ratios,
        }
        name = f"full_path-{workers}"
        say(f"written: {_shown(write_json(name, machine, results))}")
        say(f"drawn: {_shown(draw(speeds, name))}")


def draw(speeds: dict[str, dict[str, Spread]], name: str) -> Path:
    """The rates as bars."""
    from benchmarks.plot import bars  # takes a second that a quick run saves

    path = RESULTS / f"{name}.svg"
    groups = {HANDLERS[handler]: sides for handler, sides in speeds.items()}
    bars(path, "The full path: requests a second", "requests/s", groups)
    return path


def _with_aim(handler: str, side: str, found: Spread) -> str:
    aim = AIMS.get((handler, side))
    if aim is None:
        return str(found)
    return f"{found}, {aim:g}: {'reached' if found.median >= aim else 'missed'}"


def _shown(path: Path) -> str:
    return str(path.relative_to(RESULTS.parents[1]))


if __name__ == "__main__":
    main()
