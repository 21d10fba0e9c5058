"""Kills main processes under load, then changes a group in peace, and checks that nothing is lost.

    scripts/kills --kills 50 --changes 20 --seed 7
    scripts/kills --points 3            at each of the named points, three times with each protocol
    scripts/kills --report docs/reliability --seed 7      the figures go to kills.json, beside those
                                        of the other kind of run

Nobody sends anything again. Each request has to have one effect, each malformed message one dead
letter, and the effects of a key have to stand in the order in which they were sent; after a kill
those may not that were in flight at that moment. The last line is the verdict; exit code 1 where
something is not as it has to be.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stack import Stack
from tests.chaos.kills.group import POINTED, PROTOCOLS, Group
from tests.chaos.kills.load import Load
from tests.chaos.kills.points import KINDS, POINTS, kill_at_points
from tests.chaos.kills.verdict import Verdict, figures, judge
from tests.support import run
from tests.support.published import command_of, versions


def kills(group: Group, load: Load, count: int, tools: random.Random) -> int:
    """Kills main processes, one after the other, and starts others; how many."""
    for _ in range(3):
        group.start()
    group.instances[0].running()
    load.start()
    for _ in range(count):
        time.sleep(tools.uniform(1.0, 4.0))
        group.kill()
        group.start()
    load.stop()
    group.finish(load)
    return count


def changes(group: Group, load: Load, count: int, tools: random.Random) -> int:
    """Lets the group grow and shrink in peace."""
    group.start(wait=True)
    load.start()
    for number in range(count):
        time.sleep(tools.uniform(1.0, 3.0))
        if len(group.instances) < 2 or (number % 2 == 0 and len(group.instances) < 4):
            group.start(wait=True)
        else:
            group.stop()
    load.stop()
    group.finish(load)
    return 0


def at_points(stack: Stack, folder: Path, protocol: str, given: argparse.Namespace) -> Verdict:
    """A round of kills at named points, with requests of which each leaves another trace."""
    tools = random.Random(given.seed)
    group = Group(stack, folder, PROTOCOLS[protocol], tools, program=POINTED)
    load = Load(
        stack.kafka, group.name, given.rate, given.seed, given.seconds, kinds=KINDS
    )  # fmt: skip
    try:
        hits = kill_at_points(group, load, given.points, tools)
        verdict = judge(f"{protocol}, points", group.books(load), killed=hits.killed)
    finally:
        load.stop()
        group.close()
    for point in POINTS:
        verdict.facts[f"at {point}"] = hits.by_point[point]
        if hits.by_point[point] < given.points:
            verdict.wrong.append(f"{point}: {hits.by_point[point]} kills of {given.points}")
    verdict.facts |= {f"{point}, landed": n for point, n in hits.landed.items()}
    return verdict


def at_random(
    stack: Stack, folder: Path, protocol: str, given: argparse.Namespace, tools: random.Random
) -> Iterator[Verdict]:
    """Kills at any moment, then changes in peace."""
    each = -(-given.kills // len(given.protocol or PROTOCOLS))
    for title, happens, count in (("kills", kills, each), ("changes", changes, given.changes)):
        if not count:
            continue
        group = Group(stack, folder, PROTOCOLS[protocol], tools)
        load = Load(stack.kafka, group.name, given.rate, given.seed, given.seconds)
        try:
            killed = happens(group, load, count, tools)
            yield judge(f"{protocol}, {count} {title}", group.books(load), killed=killed)
        finally:
            load.stop()
            group.close()


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of main processes, in all")
    parser.add_argument("--changes", type=int, default=20, help="joins and leaves, a protocol")
    parser.add_argument(
        "--points", type=int, default=0, metavar="N", help="instead: N kills at each named point"
    )
    parser.add_argument("--rate", type=float, default=250.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=0.002, help="of each handler")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, help="a folder that keeps the logs")
    parser.add_argument("--report", type=Path, help="folder for kills.json, the figures")
    return parser


def verdicts_of(stack: Stack, folder: Path, given: argparse.Namespace) -> Iterator[Verdict]:
    """Of all rounds."""
    tools = random.Random(given.seed)
    for protocol in given.protocol or PROTOCOLS:
        if given.points:
            yield at_points(stack, folder, protocol, given)
        else:
            yield from at_random(stack, folder, protocol, given, tools)


def main() -> int:
    """Runs all rounds; 1 where something is wrong."""
    given = (parser := parser_of()).parse_args()
    if given.report is not None:  # what cannot be written is known now
        given.report.mkdir(parents=True, exist_ok=True)
    verdicts, of_what, began = [], versions(), time.monotonic()
    begun = run.begin()
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = given.logs or Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            run.fetch()
            for verdict in verdicts_of(run.stack_of_run(), folder, given):
                verdicts.append(verdict)
                say(verdict)
    finally:
        if begun:
            run.end()
    if given.report is not None:
        told = {
            "command": command_of("scripts/kills", parser, given), "seed": given.seed,
            "versions": of_what, "seconds": round(time.monotonic() - began), **figures(verdicts),
        }  # fmt: skip
        publish(given.report / "kills.json", "points" if given.points else "random", told)
    sys.stdout.write(figures(verdicts)["verdict"] + "\n")
    return int(any(verdict.wrong for verdict in verdicts))


def publish(file: Path, kind: str, told: dict[str, Any]) -> None:
    """Writes the figures of one kind of run, and leaves those of the other."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**kept, kind: told}, indent=1) + "\n")


def say(verdict: Verdict) -> None:
    """One round in a line."""
    facts = ", ".join(f"{name} {value:g}" for name, value in verdict.facts.items())
    sys.stdout.write(f"{verdict.title}: {facts}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run.end_at_sigterm()
    sys.exit(main())
