"""Runs seeded schedules of faults around the real state machines, one seed a schedule.

    scripts/simulate --seeds 1000000            a mix of the worlds
    scripts/simulate --seeds 1000 --world pool  one of them
    scripts/simulate --seed 17                  one schedule, with its trace

Worlds: `commit` (the commit-first protocol in a group, with each of the three protocols and each
error of a commit), `pool` (workers, recalls, deaths, limits), `service` (instances with both, one
journal with its waiting queue, and clients that send again). The last line is the verdict; exit
code 1 where an invariant does not hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.model import group, happenings, pool_world, service_world

WORLDS = ("commit", "service", "pool")
ROUND = 50
"""Of so many seeds the first is the pool's, two are the service's, and the others, which take
milliseconds, the commit's."""
PART = 500
"""Schedules that a process takes at once."""


@dataclass(slots=True)
class Tally:
    """What schedules came to."""

    schedules: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Takes what other schedules came to."""
        self.schedules += other.schedules
        self.happened += other.happened
        self.seconds += other.seconds
        self.broken += other.broken


@dataclass(slots=True)
class Schedule:
    """One seed's."""

    seed: int
    kind: str
    trace: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    broken: str = ""

    def run(self) -> None:
        """Runs it to its end, or to the invariant that does not hold."""
        world: group.World | pool_world.World
        if self.kind == "commit":
            protocol = group.PROTOCOLS[self.seed % len(group.PROTOCOLS)]
            world = group.World(self.seed, protocol=protocol, read_again=self.seed % 2 == 0)
        elif self.kind == "service":
            world = service_world.World(self.seed)
        else:
            world = pool_world.World(self.seed)
        try:
            if isinstance(world, service_world.World):
                world.run_through()
            elif isinstance(world, group.World):
                world.run(150, happenings.step)
            else:
                world.run()
        except AssertionError as error:
            self.broken = f"{type(error).__name__}: {error}"
        self.trace, self.seconds = world.trace, world.seconds
        self.happened = world.happened


def kind_of(seed: int, world: str | None) -> str:
    """The world of a seed."""
    if world is not None:
        return world
    return {0: "pool", 1: "service", 2: "service"}.get(seed % ROUND, "commit")


def part(first: int, count: int, world: str | None) -> Tally:
    """Runs some schedules."""
    tally = Tally()
    for seed in range(first, first + count):
        schedule = Schedule(seed, kind_of(seed, world))
        schedule.run()
        tally.schedules[schedule.kind] += 1
        tally.happened += schedule.happened
        tally.seconds += schedule.seconds
        if schedule.broken:
            tally.broken.append(f"seed {seed} ({schedule.kind}): {schedule.broken}")
    return tally


def one(seed: int, world: str | None) -> int:
    """Shows one schedule."""
    schedule = Schedule(seed, kind_of(seed, world))
    schedule.run()
    verdict = f"broken: {schedule.broken}" if schedule.broken else "every invariant holds"
    sys.stdout.write("\n".join([*schedule.trace, f"seed {seed} ({schedule.kind}): {verdict}", ""]))
    return int(bool(schedule.broken))


def many(first: int, count: int, world: str | None, jobs: int) -> int:
    """Runs schedules in processes of their own, and sums them up."""
    began, total = time.monotonic(), Tally()
    firsts = range(first, first + count, PART)
    sizes = [min(PART, first + count - start) for start in firsts]
    with ProcessPoolExecutor(jobs) as processes:
        for tally in processes.map(part, firsts, sizes, [world] * len(sizes)):
            total.add(tally)
            for line in tally.broken:
                sys.stdout.write(f"{line}\n")
    took = time.monotonic() - began
    for kind, n in sorted(total.schedules.items()):
        sys.stdout.write(f"{kind}: {n:,} schedules\n")
    for what, n in total.happened.most_common():
        sys.stdout.write(f"  {n:>12,}  {what}\n")
    sys.stdout.write(
        f"{count:,} schedules, {total.seconds / 3600:,.1f} simulated hours, {took:,.0f} s "
        f"({count / took:,.0f} a second): {len(total.broken):,} broken\n"
    )
    return int(bool(total.broken))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="run this one alone and show its trace")
    parser.add_argument("--world", choices=WORLDS, help="one of the worlds instead of a mix")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    if options.seed is not None:
        return one(options.seed, options.world)
    return many(options.first, options.seeds, options.world, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
