"""Runs schedules of the pool's world: its decisions among faults, one seed a schedule.

    scripts/simulate --seeds 10000
    scripts/simulate --seed 17        one of them, with its trace

The last line is the verdict; exit code 1 where an invariant does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.model.pool_world import World


def one(seed: int) -> int:
    world = World(seed)
    verdict = "every invariant holds"
    try:
        world.run()
    except AssertionError as error:
        verdict = f"broken: {error}"
    sys.stdout.write("\n".join([*world.trace, f"seed {seed}: {verdict}", ""]))
    return int(verdict.startswith("broken"))


def many(first: int, count: int) -> int:
    began, broken, hours = time.monotonic(), 0, 0.0
    for seed in range(first, first + count):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            broken += 1
            sys.stdout.write(f"seed {seed}: {error}\n")
        hours += world.seconds / 3600
    sys.stdout.write(
        f"{count:,} schedules, {hours:,.1f} simulated hours, {time.monotonic() - began:,.0f} s: "
        f"{broken:,} broken\n"
    )
    return int(broken > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="run this one alone and show its trace")
    options = parser.parse_args()
    if options.seed is not None:
        return one(options.seed)
    return many(options.first, options.seeds)


if __name__ == "__main__":
    sys.exit(main())
