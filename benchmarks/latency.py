"""How long a single request takes, from before it is produced until its final status is read.

    scripts/bench latency [--quick] [--rounds N] [--requests N] [--against REV]

One request at a time, with a handler that does nothing. Idle: Oncepool by its client and by
polling, the afternoon's consumer by polling, and what Kafka alone takes: produced and consumed by
one process, and a commit of an offset; and once more Oncepool by its client, with time stamps in
each process that say how long each step takes, also in the slowest of a hundred. Then Oncepool and
the afternoon's consumer beside half of the load that each keeps up with while another process of
this machine sends it. A first round does not count: a broker that has just started is half as fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.asking import (
    Ask,
    Times,
    asked,
    asked_in_all,
    by_client,
    by_committing,
    by_consuming,
    by_polling,
)
from benchmarks.contenders import Contender
from benchmarks.cpu import PARTS, medians, per_request, used
from benchmarks.full_path_runs import ROOT, RunNames, fill_topic, instance, place, running
from benchmarks.latency_steps import stamped
from benchmarks.machine import facts
from benchmarks.membership import behind, until_shared_out
from benchmarks.options import add_workers, options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from benchmarks.stamps import summary
from benchmarks.tally import counted
from benchmarks.watch import TallyWatch
from stack import Stack

ROUNDS = 3
REQUESTS = 500
LOAD = 0.5
"""Of what a side keeps up with."""
DRAINED = 200
"""Requests, for each one that is asked, by which its rate is measured where all are there."""
TRIED = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Parts of that which it is tried with, until it keeps up."""
TRIAL = 5.0
"""Seconds of each trial."""
SETTLING = 1.0
"""Seconds of the load that are there before anything is asked; who keeps up is less behind."""
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
    parser = parser_of(__doc__, "one round, half of the requests", ROUNDS)
    parser.add_argument("--requests", type=int, help=f"of each side (default: {REQUESTS})")
    add_workers(parser)
    parser.add_argument("--idle", action="store_true", help="nothing under load")
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = options.requests or (REQUESTS // 2 if options.quick else REQUESTS)
    ways = [way for way in WAYS if not (options.idle and way.loaded)]
    with other_tree(options.against) as tree, services() as stack:
        if tree is not None:
            ways.append(replace(WAYS[0], name=options.against, tree=tree))
        machine = facts(stack)
        for way in [way for way in ways if not way.loaded]:
            run(stack, way, options.workers, count)
        rates = {
            way.name: LOAD * kept_up(stack, way, options.workers, DRAINED * count)
            for way in ways
            if way.loaded
        }
        found: dict[str, list[Times]] = {way.name: [] for way in ways}
        for number, way in in_turns(ways, rounds):
            times = run(stack, way, options.workers, count, rates.get(way.name, 0.0))
            found[way.name].append(times)
            say(f"round {number + 1} of {rounds}, {way.name}: {times.p50:.1f} / {times.p99:.1f} ms")
        steps = summary(
            [one for _ in range(rounds) for one in stamped(stack, KIND, options.workers, count)]
        )
    tell(found, machine.line)
    tell_steps(steps)
    if options.whole:
        results = {"requests": count, "rounds": rounds, "found": found, "steps": steps}
        write_json("latency", machine, results)
    say(
        f"latency: p50 of {CLIENT} / {AFTERNOON}: {_ratio(found, CLIENT, AFTERNOON, 'p50')}; "
        f"p99 / {RAW}: {_ratio(found, CLIENT, RAW, 'p99')}"
    )


def run(stack: Stack, way: AskedSide, workers: int, count: int, rate: float = 0.0) -> Times:
    """One side, once, beside `rate` other requests a second."""
    with standing(stack, way, workers) as up:
        where = up.where
        if not rate:
            return costed(up, count)
        up.ask()  # all is up before the load begins
        with loaded(where, rate, SETTLING):
            times = costed(up, count)
            if (left := behind(stack.kafka, where.name, where.name)) > rate * SETTLING:
                say(f"{way.name}: {left:,} requests behind: this machine has other work")
            return times


@dataclass(frozen=True, slots=True)
class StandingSide:
    """One side, ready to be asked."""

    where: RunNames
    ask: Ask
    roots: list[int]
    """Its processes, but for their children."""


def costed(side: StandingSide, count: int) -> Times:
    """Asks so often; CPU is shared among all requests, also those of the load beside."""
    data, tally = side.where.stack.data, side.where.tally
    begun, others = used(side.roots, data), counted(tally).requests
    times = asked(side.ask, count)
    requests = asked_in_all(count) + counted(tally).requests - others
    cpu = per_request(begun, used(side.roots, data), requests)
    return replace(times, cpu=cpu)


@contextmanager
def standing(stack: Stack, way: AskedSide, workers: int) -> Iterator[StandingSide]:
    """One side, started."""
    with ExitStack() as on:
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
            members = [on.enter_context(instance(where))]
        else:
            members = []
        ask = on.enter_context(way.asking(where, KIND))
        yield StandingSide(where, ask, [member.pid for member in members])


@contextmanager
def loaded(where: RunNames, rate: float, seconds: float) -> Iterator[None]:
    """Beside it another process sends so many requests a second, and has for so many seconds."""
    command = [sys.executable, "-m", "benchmarks.steady", KIND, str(rate)]
    with running(command, where.environment) as load:
        TallyWatch(where.tally).until(int(rate * seconds), [load])
        yield


def kept_up(stack: Stack, way: AskedSide, workers: int, count: int) -> float:
    """Requests a second that it keeps up with while they are sent; `count`: how many are drained.

    Raises RuntimeError where that is none of those that are tried.
    """
    table = "plain" if way.program else "requests"
    side = Contender(way.name, way.program or (), table, tree=way.tree)
    with place(stack, workers, way.tree) as where:
        most = side.run(where, KIND, count).rate
    for rate in (part * most for part in TRIED):
        with standing(stack, way, workers) as up:
            where = up.where
            up.ask()
            with loaded(where, rate, TRIAL):
                left = behind(stack.kafka, where.name, where.name)
        say(f"{way.name}: {left:,} behind after {TRIAL:g} s of {rate:,.0f} a second")
        if left <= rate * SETTLING:
            return rate
    raise RuntimeError(f"{way.name} keeps up with none of {TRIED} of {most:,.0f} a second")


def tell(found: Mapping[str, Sequence[Times]], caption: str) -> None:
    """Prints the table."""
    print_table(
        "Milliseconds from before it is produced until its status is read, medians of the rounds",
        ("side", "p50", "p99", "longest", f"p50 of {CLIENT} / it", f"p99 of {CLIENT} / it"),
        [
            (
                name,
                *(spread([getattr(t, part) for t in times]).median for part in TOLD),
                _ratio(found, CLIENT, name, "p50"),
                _ratio(found, CLIENT, name, "p99"),
            )
            for name, times in found.items()
        ],
        caption,
    )
    print_table(
        "CPU microseconds for each request of who answers it, medians",
        ("side", *PARTS, "all"),
        [(name, *medians([t.cpu for t in times]).values()) for name, times in found.items()],
        "- where too little was used to be told",
    )


def tell_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """Prints where the time of an idle request goes."""
    print_table(
        f"{CLIENT}, idle, by step: milliseconds",
        ("step", "median", "mean of the slowest 1 %"),
        [(step["step"], step["median"], step["slow"]) for step in steps],
    )


TOLD = ("p50", "p99", "longest")


def _ratio(found: Mapping[str, Sequence[Times]], ours: str, theirs: str, part: str) -> str:
    mine, others = ([getattr(t, part) for t in found[side]] for side in (ours, theirs))
    return str(ratio(mine, others))


if __name__ == "__main__":
    main()
