"""How long it takes after something died until requests are answered again.

    scripts/bench recovery [--quick] [--rounds N] [--against REV]

An instance under a light, steady load. Each fault is followed at once by a handful of requests, and
what counts is the time until the last of them is answered: after a worker, the maintenance process
or the whole instance was killed (a new one is started at once, as a supervisor does), and after
PostgreSQL, Redis or the broker was killed and started again. `nothing` is the same without a fault.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.cpu import PARTS, medians, part_of, per_request, used
from benchmarks.full_path_runs import ROOT, RunNames, fill_topic, place, running
from benchmarks.machine import facts
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, spread
from benchmarks.tally import counted
from benchmarks.watch import TallyWatch
from feedback import Client
from stack import Stack

ROUNDS = 5
KIND = "bench.insert"
RATE = 50.0
ASKED = 24
"""Requests after a fault: some of nearly every partition."""
LOOKED_AT = 300
"""Requests of the steady load, before the first fault, whose CPU is told."""
LONGEST = 180.0
PAYLOAD = {"amount": 5}


@dataclass
class Supervised:
    """One instance, and whoever takes its place."""

    where: RunNames
    on: ExitStack
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Starts it; returns before it is ready."""
        command = [sys.executable, "-m", "consumer", "run"]
        settings = {**self.where.settings, "ONCEPOOL_LOG_LEVEL": "error"}
        settings["ONCEPOOL_KAFKA_SESSION_TIMEOUT"] = "6"
        self.process = self.on.enter_context(running(command, settings, self.where.tree))

    def kill(self, part: str) -> None:
        """SIGKILL for one of its processes of a kind, and for all where it is main."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        if part == "main":
            self.process.kill()
            self.process.wait()
            self.start()
        else:
            found = next(child for child in children if part_of(child) == part)
            os.kill(found.pid, signal.SIGKILL)


def _again(stop: Callable[..., None], start: Callable[[], None]) -> None:
    stop(kill=True)
    start()


FAULTS: dict[str, Callable[[Supervised, Stack], None]] = {
    "nothing": lambda _service, _stack: None,
    "a worker": lambda service, _stack: service.kill("worker"),
    "maintenance": lambda service, _stack: service.kill("maintenance"),
    "the instance": lambda service, _stack: service.kill("main"),
    "PostgreSQL": lambda _, stack: _again(stack.stop_database, stack.start_database),
    "Redis": lambda _, stack: _again(stack.stop_redis, stack.start_redis),
    "the broker": lambda _, stack: _again(stack.stop_broker, stack.start_broker),
}


def main() -> None:
    parser = parser_of(__doc__, "one round", ROUNDS)
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only this one")
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    with other_tree(options.against) as tree, services() as stack:
        machine = facts(stack)
        trees = {"Oncepool": ROOT} | ({options.against: tree} if tree is not None else {})
        found: dict[str, dict[str, list[float]]] = {
            name: {fault: [] for fault in options.fault or FAULTS} for name in trees
        }
        cpu: dict[str, list[Mapping[str, float]]] = {name: [] for name in trees}
        for number, name in in_turns(list(trees), rounds):
            say(f"round {number + 1} of {rounds}, {name}")
            cost, times = run(stack, trees[name], list(found[name]))
            cpu[name].append(cost)
            for fault, seconds in times.items():
                found[name][fault].append(seconds)
    tell(found, cpu, machine.line)
    if options.whole:
        write_json("recovery", machine, {"rounds": rounds, "found": found, "cpu": cpu})
    medians = {fault: spread(all_).median for fault, all_ in found["Oncepool"].items()}
    shown = ", ".join(f"{fault} {seconds:.1f}" for fault, seconds in medians.items())
    say(f"recovery: seconds until answered: {shown}")


def run(
    stack: Stack, tree: Path, faults: Sequence[str]
) -> tuple[Mapping[str, float], dict[str, float]]:
    """CPU of a request before them, and seconds until answered after each fault in turn."""
    with ExitStack() as on:
        where = on.enter_context(place(stack, 2, tree))
        fill_topic(where, KIND, 0)
        service = Supervised(where, on)
        load = [sys.executable, "-m", "benchmarks.steady", KIND, str(RATE)]
        sender = on.enter_context(running(load, where.environment))
        client = Client(stack.kafka, stack.redis, where.name, prefix=where.name)
        on.callback(client.close)
        answered(client)
        cost = undisturbed(service, sender)
        found = {}
        for fault in faults:
            answered(client)  # what the last one left is over
            begun = time.monotonic()
            FAULTS[fault](service, stack)
            answered(client)
            found[fault] = time.monotonic() - begun
            say(f"{fault}: {found[fault]:.2f} s")
        return cost, found


def undisturbed(service: Supervised, sender: subprocess.Popen[bytes]) -> Mapping[str, float]:
    """What a request of the steady load costs, by process."""
    where, roots = service.where, [service.process.pid]
    before = counted(where.tally).requests
    begun = used(roots, where.stack.data)
    done = TallyWatch(where.tally).until(before + LOOKED_AT, [sender])
    return per_request(begun, used(roots, where.stack.data), done - before)


def answered(client: Client) -> None:
    """Sends some requests, and again what failed; returns when all are done."""
    end = time.monotonic() + LONGEST
    ids = [client.submit(KIND, PAYLOAD) for _ in range(ASKED)]
    for request_id in ids:
        while client.wait(request_id, end - time.monotonic()).state != "done":
            client.submit(KIND, PAYLOAD, request_id=request_id)


def tell(
    found: Mapping[str, Mapping[str, Sequence[float]]],
    cpu: Mapping[str, Sequence[Mapping[str, float]]],
    caption: str,
) -> None:
    """Prints the tables."""
    print_table(
        "Seconds from the fault until requests that follow are answered: median (low - high)",
        ("killed", *found),
        [
            (fault, *(str(spread(side[fault])) for side in found.values()))
            for fault in next(iter(found.values()))
        ],
        caption,
    )
    print_table(
        f"CPU microseconds for each of {RATE:g} requests a second, nothing killed, medians",
        ("side", *PARTS, "all"),
        [(name, *medians(runs).values()) for name, runs in cpu.items()],
    )


if __name__ == "__main__":
    main()
