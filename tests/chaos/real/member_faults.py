"""Faults of whole instances: their main processes, and the group that they form."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

from tests.chaos.real.faults import Lane, Scene, fault
from tests.chaos.real.members import CODES, ChaosMember, until

JOINED = 40.0
LEAST = 2


def joined(member: ChaosMember) -> bool:
    """Waits until the group has given it partitions."""
    return until(lambda: member.said("partitions assigned") > 0 or not member.alive, JOINED)


@fault(Lane.PROCESS, 2)
def main_killed(scene: Scene, chance: random.Random) -> str:
    """SIGKILL, and another instance comes in its place."""
    member = scene.members.pick(chance)
    if member is None:
        return ""
    children = [*member.children(), *member.children("processing.maintenance")]
    member.kill()
    joined(scene.members.start())
    return f"instance {member.number} with {len(children)} children"


@fault(Lane.PROCESS, 1)
def main_stopped_gently(scene: Scene, chance: random.Random) -> str:
    """SIGTERM, and another one comes."""
    member = scene.members.pick(chance)
    if member is None:
        return ""
    code = member.stop()
    joined(scene.members.start())
    assert code in CODES, f"exit code {code}"
    return f"instance {member.number}, exit code {code}"


@fault(Lane.PROCESS, 0.5)
def main_frozen_beyond_its_session(scene: Scene, chance: random.Random) -> str:
    """SIGSTOP until the group has given its partitions to others."""
    member = scene.members.pick(chance)
    if member is None or len(scene.members.serving) < LEAST:
        return ""
    others = [m for m in scene.members.serving if m is not member]
    before = [m.said("partitions assigned") for m in others]
    os.kill(member.pid, signal.SIGSTOP)
    try:
        seen = until(
            lambda: any(
                m.said("partitions assigned") > n for m, n in zip(others, before, strict=True)
            ),
            15,
        )
    finally:
        os.kill(member.pid, signal.SIGCONT)
    return f"instance {member.number}" if seen else ""


@fault(Lane.PROCESS, 0.5)
def main_busy_beyond_max_poll(scene: Scene, chance: random.Random) -> str:
    """A turn of its loop that takes longer than max.poll.interval.ms, while heartbeats go on."""
    before = scene.members.said("partitions revoked")
    found = scene.orders.give("main_turn", "wait 10").evidence(5)
    if found is None:
        return ""
    seen = until(lambda: scene.members.said("partitions revoked") > before, 20)
    return f"pid {found['pid']} for 10 s" if seen else ""


@fault(Lane.PROCESS, 1)
def member_joins_and_leaves(scene: Scene, chance: random.Random) -> str:
    """One more for a moment: two rebalances."""
    member = scene.members.start()
    if not joined(member):
        member.kill()
        return ""
    time.sleep(chance.uniform(0, 2))  # how long it stays
    code = member.stop()
    assert code in CODES, f"exit code {code}"
    return f"instance {member.number}, exit code {code}"


@fault(Lane.PROCESS, 0.7)
def members_storm(scene: Scene, chance: random.Random) -> str:
    """Three come at once; one is killed, the others leave at once."""
    storm = [scene.members.start() for _ in range(2)]
    came = sum(joined(member) for member in storm)
    storm[0].kill()
    storm[1].process.send_signal(signal.SIGTERM)
    storm[1].stop()
    return f"{came} came" if came else ""


@fault(Lane.PROCESS, 0.4)
def two_with_one_static_id(scene: Scene, chance: random.Random) -> str:
    """The group lets one of them in; the other one ends."""
    properties = json.dumps({"group.instance.id": f"static-{chance.randrange(1000)}"})
    pair = [scene.members.start(ONCEPOOL_KAFKA_PROPERTIES=properties) for _ in range(2)]
    for member in pair:
        member.how = "stopped"  # which of them ends by itself is the broker's choice
    refused = until(
        lambda: (
            any(not m.alive or m.said("kafka") or m.said("ending") for m in pair)
            and any(m.said("partitions assigned") for m in pair)
        ),
        30,
    )
    for member in pair:
        if member.alive:
            try:
                member.stop()
            except subprocess.TimeoutExpired:
                member.kill()
    return f"instances {pair[0].number} and {pair[1].number}" if refused else ""


@fault(Lane.PROCESS, 0.2)
def partitions_added(scene: Scene, chance: random.Random) -> str:
    """Seen when the members have been given more than before."""
    if scene.partitions >= 24:
        return ""
    scene.partitions += 1
    scene.place.add_partitions(scene.name, scene.partitions)
    return f"{scene.partitions} partitions"
