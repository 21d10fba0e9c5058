"""What may happen next in a group, and how often."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import TypeAlias

from tests.model.commit_answers import ENDING, TRANSIENT
from tests.model.group import BATCH, World
from tests.model.member import Process

ROOMS = (2, 5, 1000)
"""How many records there may be room for."""

Happening: TypeAlias = Callable[[World, random.Random, Process], None]

ENDS = 0.08
"""Share of the errors after which the service ends."""


def step(world: World, but: tuple[str, ...] = ()) -> None:
    """One random thing happens, other than those named."""
    happenings, upto = _choices(but, read_again=world.read_again)
    draw, processes = world.random.random, world.processes
    happen = happenings[bisect(upto, draw() * upto[-1], 0, len(upto) - 1)]
    happen(world, world.random, processes[int(draw() * len(processes))])


@cache
def _choices(but: tuple[str, ...], *, read_again: bool) -> tuple[list[Happening], list[float]]:
    """What may happen, and how often as running sums."""
    all_ = HAPPENINGS | (MARKED if read_again else {})
    choices = {what: often for what, often in all_.items() if what.__name__ not in but}
    return list(choices), list(accumulate(choices.values()))


def _produce(world: World, choose: random.Random, _process: Process) -> None:
    world.ends[choose.choice(world.places)] += choose.randint(1, 5)


def _turn(_world: World, choose: random.Random, process: Process) -> None:
    if process.runs:
        process.poll(int(choose.random() * (BATCH + 1)))
        process.next(ROOMS[int(choose.random() * len(ROOMS))])


def _land(world: World, choose: random.Random, _process: Process) -> None:
    if world.requests:
        request = world.requests[int(choose.random() * len(world.requests))]
        world.land(request, answer=choose.random() < 0.8)


def _break(world: World, choose: random.Random, _process: Process) -> None:
    if world.requests:
        request = choose.choice(world.requests)
        if not request.answered:
            world.count("a connection breaks with a commit on it")
        world.break_connection(request)


def _fail(world: World, choose: random.Random, _process: Process) -> None:
    if world.requests:
        draw, landed = choose.random(), choose.random() < 0.5
        request = choose.choice(world.requests)
        code = choose.choice(ENDING if draw >= 1.0 - ENDS else TRANSIENT)
        world.fail(request, code, one=draw < 0.5 or draw >= 1.0 - ENDS / 2, landed=landed)


def _finish(world: World, choose: random.Random, process: Process) -> None:
    if process.hand and not process.frozen:
        world.end_some(process, choose.randint(1, 6))


def _hear(world: World, _choose: random.Random, process: Process) -> None:
    world.hear(process)


def _complete(world: World, choose: random.Random, _process: Process) -> None:
    world.complete(evict=choose.random() < 0.2)


def _rebalance(world: World, _choose: random.Random, _process: Process) -> None:
    if world.target is None:
        world.count("a rebalance without a cause")
        world.rebalance()


def _freeze(world: World, _choose: random.Random, process: Process) -> None:
    if process.alive:
        world.count("a member goes on" if process.frozen else "a member is frozen")
    process.frozen = not process.frozen


def _kill(world: World, _choose: random.Random, process: Process) -> None:
    if process.alive:
        world.count("a member is killed")
    world.kill(process)


def _stop(world: World, _choose: random.Random, process: Process) -> None:
    if process.runs:
        world.count("a member is stopped")
        process.stop()


def _abandon(world: World, _choose: random.Random, _process: Process) -> None:
    for process in world.processes:
        if process.stopping and process.runs:
            if process.commit.open_since is not None:
                world.count("an open commit is given up")
            process.abandon()


def _start(world: World, _choose: random.Random, _process: Process) -> None:
    if len(world.processes) < 6:
        world.count("a member joins")
        world.start()


def _reads(world: World, _choose: random.Random, _process: Process) -> None:
    world.read_fails = not world.read_fails
    if world.read_fails:
        world.count("committed offsets cannot be read")


def _starts(world: World, _choose: random.Random, _process: Process) -> None:
    world.starts_fail = not world.starts_fail


HAPPENINGS: dict[Happening, float] = {
    _turn: 45,
    _land: 25,
    _produce: 10,
    _break: 6,
    _hear: 3,
    _complete: 4,
    _fail: 3,
    _rebalance: 1,
    _freeze: 1,
    _reads: 1,
    _kill: 0.5,
    _stop: 0.5,
    _abandon: 2,
    _start: 0.5,
}
"""What may happen, and how often of a hundred times."""
MARKED: dict[Happening, float] = {_finish: 10, _starts: 1}
"""The same where marks are told."""
