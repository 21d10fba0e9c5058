"""How long a quick type waits beside a slow one that takes all that it gets.

    scripts/bench beside [--quick] [--rounds N] [--requests N] [--against REV]

Requests of 1 ms of CPU, one at a time, from before they are produced until their status is read:
alone; beside as many requests of 1 s as there is time for, of a type that may have one of two
workers (`max_at_once=1`); and beside the same where it may have both.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.asking import Times, asked, asked_in_all, by_client
from benchmarks.cpu import PARTS, medians, per_request, used
from benchmarks.full_path_runs import ROOT, fill_topic, place, running
from benchmarks.machine import facts
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from stack import Stack

ROUNDS = 5
REQUESTS = 300
SLOW = 400
"""Requests of 1 s that are there at the start: more than are done."""
QUICK = "bench.cpu.1"
ALONE, KEPT, NONE = "alone", "one worker kept", "no worker kept"
BESIDE = {ALONE: None, KEPT: "bench.cpu.capped", NONE: "bench.cpu.1000"}
PAUSE = 0.02
"""Seconds between two requests, so that they fall on all that the slow ones do."""
AIM = 3.0
"""Of the p99 alone, at most, where a worker is kept."""


def main() -> None:
    parser = parser_of(__doc__, "one round, a third of the requests", ROUNDS)
    parser.add_argument("--requests", type=int, help=f"of each case (default: {REQUESTS})")
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = options.requests or (REQUESTS // 3 if options.quick else REQUESTS)
    with other_tree(options.against) as tree, services() as stack:
        sides = [(name, ROOT) for name in BESIDE]
        if tree is not None:
            sides += [(name, tree) for name in BESIDE]
        machine = facts(stack)
        found: dict[str, list[Times]] = {}
        for number, (name, files) in in_turns(sides, rounds):
            # A request that no worker is kept for waits for a second: fewer of them do.
            asks = max(10, count // 10) if name == NONE else count
            times = run(stack, BESIDE[name], asks, files)
            label = name if files == ROOT else f"{name}, {options.against}"
            found.setdefault(label, []).append(times)
            say(f"round {number + 1} of {rounds}, {label}: {times.p50:.1f} / {times.p99:.1f} ms")
    tell(found, machine.line)
    if options.whole:
        write_json("beside", machine, {"requests": count, "rounds": rounds, "found": found})
    share = ratio([t.p99 for t in found[KEPT]], [t.p99 for t in found[ALONE]])
    verdict = "reached" if share.median <= AIM else "missed"
    say(f"beside: p99 where a worker is kept / alone: {share}, at most {AIM:g}: {verdict}")


def run(stack: Stack, slow: str | None, count: int, tree: Path) -> Times:
    """One case, once."""
    with place(stack, 2, tree) as where:
        fill_topic(where, slow or QUICK, SLOW if slow else 0)
        settings = {**where.settings, "ONCEPOOL_APP": "benchmarks.busy_app:app"}
        # What it has not done in its grace it gives up: its exit code says so, and does not matter.
        command = [sys.executable, "-m", "consumer", "run"]
        with running(command, settings, tree) as process, by_client(where, QUICK) as ask:
            ask()  # it is up
            begun = used([process.pid], stack.data)
            times = asked(ask, count, PAUSE)
            cpu = per_request(begun, used([process.pid], stack.data), asked_in_all(count))
            return replace(times, cpu=cpu)


def tell(found: Mapping[str, Sequence[Times]], caption: str) -> None:
    """Prints the table."""
    alone = [t.p99 for t in found[ALONE]]
    print_table(
        "Milliseconds of a request of 1 ms of CPU, medians of the rounds",
        ("case", "p50", "p99", "longest", "p99 / alone"),
        [
            (
                name,
                spread([t.p50 for t in times]).median,
                spread([t.p99 for t in times]).median,
                spread([t.longest for t in times]).median,
                str(ratio([t.p99 for t in times], alone)),
            )
            for name, times in found.items()
        ],
        caption,
    )
    print_table(
        "CPU microseconds for each of them, what the slow ones compute included, medians",
        ("case", *PARTS, "all"),
        [(name, *medians([t.cpu for t in times]).values()) for name, times in found.items()],
    )


if __name__ == "__main__":
    main()
