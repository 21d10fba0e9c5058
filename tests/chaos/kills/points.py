"""Kills at named points of a main process, each as often as is wanted, under load."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.kills.group import Group
from tests.chaos.kills.load import Load
from tests.chaos.real.orders import Orders
from tests.support.service import Instance
from tests.support.waiting import eventually

KINDS: Mapping[str, float] = {"step": 0.8, "once": 0.1, "charge": 0.1}
MEMBERS = 3
TRIES = 4
"""Times that a kill at a point is tried, where nobody came by."""
ASSIGNED = "partitions assigned"
PASSES = 25.0
"""Seconds within which somebody has to come by; a session ends in six."""

BEHIND = 1000
"""Messages without an end with which a group is not killed further."""
SETTLED = 60.0
"""Seconds within which what was read again has to get on."""

Happens = Callable[[Group, random.Random], None]


def nothing(group: Group, chance: random.Random) -> None:
    """Somebody comes by as long as there is load."""


def joins(group: Group, chance: random.Random) -> None:
    """One more, so that others have to let partitions go."""
    group.start()


def dies(group: Group, chance: random.Random) -> None:
    """One is killed, so that somebody finds a gap, and another one joins."""
    group.kill()
    group.start()


def stops(group: Group, chance: random.Random) -> None:
    """One that is a member is told to end."""
    members = eventually(lambda: [one for one in group.instances if ASSIGNED in one.log], 60)
    chance.choice(members).process.send_signal(signal.SIGTERM)


POINTS: Mapping[str, Happens] = {
    "commit_before": nothing, "commit_sent": nothing, "commit_answered": nothing,
    "mark_before": nothing, "mark_sent": nothing,
    "hand_out_before": nothing, "handed_out": nothing, "chunk_runs": nothing,
    "revocation_begins": joins, "last_commit_before": joins, "last_commit_sent": joins,
    "revocation_over": joins,
    "assignment_begins": dies, "gap_before_it_is_read": dies, "gap_read": dies,
    "assignment_over": dies, "gap_half_run": dies,
    "stop_commit_before": stops, "stop_commit_sent": stops, "leaving": stops, "left": stops,
}  # fmt: skip
"""Each point, and what brings somebody there."""


@dataclass
class Hits:
    """What became of the kills."""

    by_point: Counter[str] = field(default_factory=Counter)
    others: int = 0
    """Kills that only brought another process to its point."""
    landed: Counter[str] = field(default_factory=Counter)
    """Of these points, how often the commit was the group's when its sender was dead."""

    @property
    def killed(self) -> int:
        return self.by_point.total() + self.others


def kill_at_points(group: Group, load: Load, hits: int, chance: random.Random) -> Hits:
    """Each point so often, in an order by chance; those that nobody comes by are left at less."""
    found, orders = Hits(), Orders(group.orders)
    for _ in range(MEMBERS):
        group.start()
    group.instances[0].running()
    load.start()
    todo = [point for point in POINTS for _ in range(hits)]
    chance.shuffle(todo)
    for point in todo:
        for _ in range(TRIES):
            if hit(group, orders, point, chance, found):
                break
        even_up(group, chance)
        settle(group, load)
    load.stop()
    group.finish(load)
    return found


def hit(group: Group, orders: Orders, point: str, chance: random.Random, found: Hits) -> bool:
    """One kill at a point: whether somebody has come by and died of it."""
    time.sleep(chance.uniform(0.2, 1.5))  # the moment is to be another one each time
    order = orders.give(point, "kill")
    POINTS[point](group, chance)
    found.others += POINTS[point] is dies
    evidence = order.evidence(PASSES)
    if evidence is None:
        sys.stderr.write(f"{point}: nobody came by\n")
        return False
    [victim] = [one for one in group.instances if one.process.pid == evidence["pid"]]
    group.instances.remove(victim)
    group.killed.add(victim.process.pid)
    code = victim.process.wait(30)
    if code != -signal.SIGKILL:
        raise AssertionError(f"{point}: ended with {code}\n{victim.log[-2000:]}")
    found.by_point[point] += 1
    if "_sent" in point:
        found.landed[point] += has_landed(group, evidence)
    sys.stderr.write(f"{point}: {evidence['about']}\n")
    return True


def has_landed(group: Group, evidence: Mapping[str, Any]) -> bool:
    """Whether the commit that was sent stands; nobody else has the partitions for some seconds."""
    stands = group.committed()
    told = (piece.split(":", 2) for piece in str(evidence["about"]).split())
    return any(stands[int(partition)].metadata == metadata for partition, _, metadata in told)


def settle(group: Group, load: Load) -> None:
    """Lets owners get on: six that die in a row before anything ends give up what they died of."""
    until = time.monotonic() + SETTLED
    while time.monotonic() < until:
        behind = load.arrived - group.ended() > BEHIND
        load.rest(resting=behind)
        if not behind and group.calm():
            break
        time.sleep(0.5)
    load.rest(resting=False)


def even_up(group: Group, chance: random.Random) -> None:
    """The wanted number of members again."""
    group.instances[:] = [one for one in group.instances if still_there(one)]
    while len(group.instances) < MEMBERS:
        group.start()
    while len(group.instances) > MEMBERS:
        group.stop()


def still_there(instance: Instance) -> bool:
    """Whether it runs; one that ended by itself has to have done so in peace."""
    code = instance.process.poll()
    if code not in (None, 0):
        raise AssertionError(f"ended with {code}\n{instance.log[-2000:]}")
    return code is None
