"""Runs seeded schedules of faults around the real state machines, one seed a schedule.

    scripts/simulate --seeds 1000000            a mix of the worlds
    scripts/simulate --seeds 1000 --world pool  one of them
    scripts/simulate --seed 17                  one schedule, with its trace
    scripts/simulate --minutes 60 --report docs/reliability

Worlds: `commit` (the commit-first protocol in a group, with each of the three protocols and each
error of a commit), `pool` (workers, recalls, deaths, limits), `service` (instances with both, one
journal with its waiting queue and references, a Redis of statuses, and clients that read them and
send again), `handover` (the same with marks, where nobody sends again). What a seed does depends on
nothing else. The last line is the verdict; exit code 1 where an invariant does not hold.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.model import group, handover_world, happenings, pool_world, service_world
from tests.model.tally import Tally
from tests.support.published import command_of, version

WORLDS = ("commit", "service", "pool", "handover")
ROUND = 80
"""Of so many seeds the first is the pool's, two are of whole services, and the others, which take
milliseconds, the commit's."""
PART = 500
"""Schedules that a process takes at once."""
SWEEP = 25
"""Schedules after which what has gone is collected."""


@dataclass(slots=True)
class Schedule:
    """One seed's."""

    seed: int
    world: str | None = None
    """Which of the worlds; None: as the seed says."""
    tracing: bool = False
    kind: str = ""
    trace: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    broken: str = ""

    def __post_init__(self) -> None:
        drawn = {0: "pool", 1: "service", 2: "handover"}.get(self.seed % ROUND, "commit")
        self.kind = self.world or drawn

    def run(self) -> None:
        """Runs it to its end, or to the invariant that does not hold."""
        world: group.World | pool_world.World
        if self.kind == "commit":
            protocol = group.PROTOCOLS[self.seed % len(group.PROTOCOLS)]
            again = self.seed % 2 == 0
            world = group.World(
                self.seed, protocol=protocol, read_again=again, tracing=self.tracing
            )
        elif self.kind == "service":
            world = service_world.World(self.seed, tracing=self.tracing)
        elif self.kind == "handover":
            world = handover_world.World(self.seed, tracing=self.tracing)
        else:
            world = pool_world.World(self.seed, tracing=self.tracing)
        try:
            if isinstance(world, service_world.World):
                world.run_through()
            elif isinstance(world, group.World):
                world.run(150, happenings.step)
            else:
                world.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is found
            self.broken = f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError):
                self.broken += f" at {traceback.extract_tb(error.__traceback__)[-1]}"
        self.trace, self.seconds = world.trace, world.seconds
        self.happened = world.happened


def part(first: int, count: int, world: str | None) -> Tally:
    """Runs some schedules."""
    tally = Tally()
    for seed in range(first, first + count):
        schedule = Schedule(seed, world)
        schedule.run()
        tally.schedules[schedule.kind] += 1
        tally.happened.update(schedule.happened)
        tally.seconds += schedule.seconds
        if schedule.broken:
            tally.broken.append(f"seed {seed} ({schedule.kind}): {schedule.broken}")
        if seed % SWEEP == 0:
            gc.collect()
    return tally


def _begin() -> None:
    """What schedules leave is collected together, and nothing else is looked at."""
    gc.collect()
    gc.freeze()
    gc.disable()


def one(seed: int, world: str | None) -> int:
    """Shows one schedule."""
    schedule = Schedule(seed, world, tracing=True)
    schedule.run()
    verdict = f"broken: {schedule.broken}" if schedule.broken else "every invariant holds"
    sys.stdout.write("\n".join([*schedule.trace, f"seed {seed} ({schedule.kind}): {verdict}", ""]))
    return int(bool(schedule.broken))


def parts(options: argparse.Namespace) -> Iterator[Tally]:
    """Runs schedules in processes of their own, part by part, in the order of their seeds."""
    last = options.first + options.seeds
    ends = time.monotonic() + 60 * options.minutes
    under_way: deque[Future[Tally]] = deque()
    with ProcessPoolExecutor(options.jobs, initializer=_begin) as processes:
        for first in range(options.first, last, PART):
            if time.monotonic() > ends:
                break
            size = min(PART, last - first)
            under_way.append(processes.submit(part, first, size, options.world))
            if len(under_way) > 2 * options.jobs:
                yield under_way.popleft().result()
        for future in under_way:
            yield future.result()


def many(options: argparse.Namespace, command: str) -> int:
    """Runs schedules and sums them up; `command`: what makes the same run again."""
    version()  # which may be another one in the end
    if options.report is not None:  # before anything runs: what cannot be written is known now
        options.report.mkdir(parents=True, exist_ok=True)
    began, total = time.monotonic(), Tally()
    for done, tally in enumerate(parts(options), 1):
        total.add(tally)
        if done % 40 == 0:
            sys.stdout.write(f"{total.schedules.total():,} schedules so far\n")
            sys.stdout.flush()
        for line in tally.broken:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    took = time.monotonic() - began
    sys.stdout.write(total.as_text(took))
    if options.report is not None:
        run = {
            "command": command,
            "first seed": options.first,
            "processes": options.jobs,
            "seconds": round(took),
        }
        (options.report / "simulate.json").write_text(total.as_json(run))
    return int(bool(total.broken))


def main() -> int:
    options = (parser := parser_of()).parse_args()
    if options.seed is not None:
        return one(options.seed, options.world)
    return many(options, command_of("scripts/simulate", parser, options, always=("seeds",)))


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="run this one alone and show its trace")
    parser.add_argument("--world", choices=WORLDS, help="one of the worlds instead of a mix")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after")
    parser.add_argument("--report", type=Path, help="folder for simulate.json, the figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
