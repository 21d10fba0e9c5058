"""Whether memory and rate stay the same while a large backlog is worked off.

    scripts/bench backlog [--quick] [--rounds N] [--messages N] [--against REV]

One instance finds 10 M messages in its topic (300,000 with --quick). Its rate and the memory of its
processes are looked at all along; what counts is the last third against the first. Handlers do
nothing but count, and each request has a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.cpu import PARTS, part_of, per_request, used
from benchmarks.full_path_runs import ROOT, RunNames, fill_topic, instance, place
from benchmarks.machine import facts
from benchmarks.options import add_workers, options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns
from benchmarks.tally import STEP_GIVEN, Mark, marks, rate_between
from stack import Stack

ROUNDS = 1
"""What is held to each other are the thirds of one."""
MESSAGES = 10_000_000
LOOK = 0.5
LONGEST_STALL = 120.0
"""Seconds without a request after which the run is given up."""
THIRDS = ((0.05, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 0.98))


@dataclass(frozen=True, slots=True)
class MemoryLook:
    """What was seen at one time."""

    done: int
    memory: dict[str, float]
    """Part -> MiB resident, of all its processes."""
    cpu: Mapping[str, float]
    """Part -> CPU seconds so far."""


@dataclass(frozen=True, slots=True)
class Thirds:
    """What was seen in each third of the messages."""

    rates: list[float]
    """Requests a second."""
    memory: dict[str, list[float]]
    """Part -> the most MiB; 0 where nobody looked in that third."""
    cpu: list[dict[str, float]]
    """Part -> microseconds a request; empty where that could not be told."""


def main() -> None:
    parser = parser_of(__doc__, "300,000 messages", ROUNDS)
    parser.add_argument("--messages", type=int, help=f"messages (default: {MESSAGES:,})")
    add_workers(parser)
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = options.messages or (300_000 if options.quick else MESSAGES)
    with other_tree(options.against) as tree, services() as stack:
        machine = facts(stack)
        trees = {"Oncepool": ROOT} | ({options.against: tree} if tree is not None else {})
        found: dict[str, list[Thirds]] = {name: [] for name in trees}
        for _, name in in_turns(list(trees), rounds):
            found[name].append(run(stack, options.workers, count, trees[name]))
            tell(name, count, found[name][-1], machine.line)
    if options.whole:
        results = {"messages": count, "rounds": rounds, "found": found}
        write_json("backlog", machine, results)
    last = found["Oncepool"][-1]
    rates, memory = last.rates, last.memory
    growth = {part: row[-1] / row[0] for part, row in memory.items() if row[0] and row[-1]}
    worst = max(growth, key=lambda part: growth[part], default=None)
    say(
        f"backlog: the last third's rate is {rates[-1] / rates[0]:.2f} of the first's; memory: "
        + (f"{worst} grew most, to {growth[worst]:.2f}" if worst else "too short to be looked at")
    )


def run(stack: Stack, workers: int, count: int, tree: Path) -> Thirds:
    """Rates and MiB by thirds."""
    with place(stack, workers, tree) as where:
        fill_topic(where, "bench.row", count, ordered=True)
        say(f"{count:,} messages are there")
        step = str(min(1000, max(1, count // 2000)))
        settings = {"ONCEPOOL_APP": "benchmarks.handoff_app:app", STEP_GIVEN: step}
        with instance(where, **settings) as process:
            looks = watch(process.pid, where, count)
        return thirds(looks, marks(where.tally), count)


def watch(root: int, where: RunNames, count: int) -> list[MemoryLook]:
    """Looks until nearly all is done."""
    looks: list[MemoryLook] = []
    moved = time.monotonic()
    while not looks or looks[-1].done < THIRDS[-1][1] * count:
        found = marks(where.tally)
        done = found[-1].done if found else 0
        if not looks or done > looks[-1].done:
            moved = time.monotonic()
        elif time.monotonic() - moved > LONGEST_STALL:
            raise RuntimeError(f"nothing was done for {LONGEST_STALL:g} s, after {done:,}")
        looks.append(MemoryLook(done, memory_of(root), used([root], where.stack.data)))
        # Reading what was counted takes the longer, the more there is.
        time.sleep(max(LOOK, len(found) / 50_000))
    return looks


def memory_of(root: int) -> dict[str, float]:
    """MiB resident of a process and its children, by what they are."""
    process = psutil.Process(root)
    found = {"main": process.memory_info().rss / 2**20}
    for child in process.children(recursive=True):
        part = part_of(child)
        found[part] = found.get(part, 0.0) + child.memory_info().rss / 2**20
    return found


def thirds(looks: Sequence[MemoryLook], found: Sequence[Mark], count: int) -> Thirds:
    """The rate of each third, and the most memory of each part in it."""
    rates = [rate_between(found, a * count, b * count) for a, b in THIRDS]
    memory: dict[str, list[float]] = {}
    for part in sorted({part for look in looks for part in look.memory}):
        seen = [(look.done / count, look.memory.get(part, 0.0)) for look in looks]
        memory[part] = [
            max((mib for share, mib in seen if a <= share <= b), default=0.0) for a, b in THIRDS
        ]
    return Thirds(rates, memory, [_cpu_between(looks, a * count, b * count) for a, b in THIRDS])


def _cpu_between(looks: Sequence[MemoryLook], first: float, last: float) -> dict[str, float]:
    """Microseconds of a request, of the looks within these amounts."""
    seen = [look for look in looks if first <= look.done <= last]
    if len(seen) < 2:
        return {}
    begin, end = seen[0], seen[-1]
    return per_request(begin.cpu, end.cpu, end.done - begin.done)


def tell(name: str, count: int, result: Thirds, caption: str) -> None:
    """Prints the table."""
    rows: list[Sequence[object]] = [("requests/s", *result.rates)]
    rows += [(f"{part}, MiB", *values) for part, values in result.memory.items()]
    rows += [(f"{part}, us of CPU", *(third.get(part) for third in result.cpu)) for part in PARTS]
    print_table(
        f"{name}: {count:,} messages, by thirds of them",
        ("", "first", "second", "last"),
        rows,
        caption,
    )


if __name__ == "__main__":
    main()
