"""How long a single request takes, from before it is produced until its final status is read.

    scripts/bench latency [--quick] [--rounds N] [--requests N] [--against REV]

One request at a time, with a handler that does nothing. Idle: Oncepool by its client and by
polling, the afternoon's consumer by polling, and what Kafka alone takes: produced and consumed by
one process, and a commit of an offset. Then Oncepool and the afternoon's consumer beside half of
the load that each sustains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.asking import Ask, Times, asked, by_client, by_committing, by_consuming, by_polling
from benchmarks.contenders import Contender
from benchmarks.full_path_runs import ROOT, RunNames, fill_topic, instance, place, running
from benchmarks.machine import facts
from benchmarks.membership import behind, until_shared_out
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from benchmarks.watch import TallyWatch
from stack import Stack

ROUNDS = 3
REQUESTS = 500
LOAD = 0.5
"""Of what a side sustains."""
SUSTAINED = 200
"""Requests by which that is measured, for each one that is asked."""
SETTLING = 1.0
"""Seconds of the load that are there before anything is asked."""
KIND = "bench.noop"
CLIENT, POLLED, RAW, AFTERNOON = "Oncepool, client", "Oncepool, polled", "Kafka alone", "afternoon"
COMMIT = "a commit"
LOADED = ", half load"
_AFTERNOON = ("benchmarks.afternoon", KIND, "wait", "poll")


@dataclass(frozen=True, slots=True)
class AskedSide:
    """One side."""

    name: str
    asking: Callable[[RunNames, str], AbstractContextManager[Ask]]
    program: Sequence[str] | None = ()
    """As a Contender has it; None: nothing runs."""
    loaded: bool = False
    tree: Path = ROOT


WAYS = (
    AskedSide(CLIENT, by_client),
    AskedSide(POLLED, by_polling),
    AskedSide(AFTERNOON, by_polling, _AFTERNOON),
    AskedSide(RAW, by_consuming, None),
    AskedSide(COMMIT, by_committing, None),
    AskedSide(CLIENT + LOADED, by_client, loaded=True),
    AskedSide(AFTERNOON + LOADED, by_polling, _AFTERNOON, loaded=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, half of the requests")
    parser.add_argument("--rounds", type=int, help=f"rounds (default: {ROUNDS})")
    parser.add_argument("--requests", type=int, help=f"of each side (default: {REQUESTS})")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--idle", action="store_true", help="nothing under load")
    add_option(parser)
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    count = options.requests or (REQUESTS // 2 if options.quick else REQUESTS)
    ways = [way for way in WAYS if not (options.idle and way.loaded)]
    with other_tree(options.against) as tree, services() as stack:
        if tree is not None:
            ways.append(replace(WAYS[0], name=options.against, tree=tree))
        machine = facts(stack)
        found: dict[str, list[Times]] = {way.name: [] for way in ways}
        for number, way in in_turns(ways, rounds):
            times = run(stack, way, options.workers, count)
            found[way.name].append(times)
            say(f"round {number + 1} of {rounds}, {way.name}: {times.p50:.1f} / {times.p99:.1f} ms")
    tell(found, machine.line)
    if not options.quick:
        write_json("latency", machine, {"requests": count, "rounds": rounds, "found": found})
    say(
        f"latency: p50 of {CLIENT} / {AFTERNOON}: {_ratio(found, CLIENT, AFTERNOON, 'p50')}; "
        f"p99 / {RAW}: {_ratio(found, CLIENT, RAW, 'p99')}"
    )


def run(stack: Stack, way: AskedSide, workers: int, count: int) -> Times:
    """One side, once."""
    rate = LOAD * sustained(stack, way, workers, SUSTAINED * count) if way.loaded else 0.0
    with ExitStack() as on, ExitStack() as last:
        where = on.enter_context(place(stack, workers, way.tree))
        fill_topic(where, KIND, 0)
        if way.program:
            command = [sys.executable, "-m", *way.program]
            members = [
                on.enter_context(running(command, where.environment, way.tree))
                for _ in range(workers)
            ]
            until_shared_out(stack.kafka, where.name, *members)
        elif way.program is not None:
            on.enter_context(instance(where))
        ask = last.enter_context(way.asking(where, KIND))
        if rate:
            ask()  # all is up before the load begins
            command = [sys.executable, "-m", "benchmarks.steady", KIND, str(rate)]
            load = last.enter_context(running(command, where.environment))
            TallyWatch(where.tally).until(int(rate * SETTLING), [load])
        times = asked(ask, count)
        if rate and (left := behind(stack.kafka, where.name, where.name)) > rate * SETTLING:
            say(f"{way.name}: {left:,} requests behind: this machine has other work, or no room")
        return times


def sustained(stack: Stack, way: AskedSide, workers: int, count: int) -> float:
    """Requests a second that it does where there are enough."""
    table = "plain" if way.program else "requests"
    side = Contender(way.name, way.program or (), table, tree=way.tree)
    with place(stack, workers, way.tree) as where:
        return side.run(where, KIND, count).rate


def tell(found: Mapping[str, Sequence[Times]], caption: str) -> None:
    """Prints the table."""
    print_table(
        "Milliseconds from before it is produced until its status is read, medians of the rounds",
        ("side", "p50", "p99", "longest", f"p50 of {CLIENT} / it", f"p99 of {CLIENT} / it"),
        [
            (
                name,
                *(spread([getattr(t, part) for t in times]).median for part in PARTS),
                _ratio(found, CLIENT, name, "p50"),
                _ratio(found, CLIENT, name, "p99"),
            )
            for name, times in found.items()
        ],
        caption,
    )


PARTS = ("p50", "p99", "longest")


def _ratio(found: Mapping[str, Sequence[Times]], ours: str, theirs: str, part: str) -> str:
    mine, others = ([getattr(t, part) for t in found[side]] for side in (ours, theirs))
    return str(ratio(mine, others))


if __name__ == "__main__":
    main()
