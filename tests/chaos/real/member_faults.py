"""Faults of whole instances: their main processes, and the group that they form."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.real.coordinator import partitions_given
from tests.chaos.real.faults import Lane, Scene, fault
from tests.chaos.real.members import CODES, FATAL, ChaosMember, until

JOINED = 40.0
LEAST = 2
STORM = 3
"""Instances that come at once."""
FENCED = ("Static consumer fenced", "instance ID is still used")
"""What brokers say to one of two members with one static id, by either protocol; in its log."""
GIVEN = 40.0
"""Seconds in which members have what was added: they ask for the topic every 10 s."""


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
    before = {m.pid: m.said("partitions revoked") for m in scene.members.alive}
    found = scene.orders.give("main_turn", "wait 10").evidence(5)
    busy = [m for m in scene.members.all if found and m.pid == found["pid"]]
    if not busy:
        return ""
    member, had = busy[-1], before.get(busy[-1].pid, 0)
    seen = until(lambda: member.said("partitions revoked") > had, 20)
    return f"instance {member.number} for 10 s, and lost its partitions" if seen else ""


@fault(Lane.PROCESS, 1)
def member_joins_and_leaves(scene: Scene, chance: random.Random) -> str:
    """One more for a moment: two rebalances."""
    member = scene.members.start()
    if not joined(member):
        member.kill()
        return ""
    time.sleep(chance.uniform(0, 2))  # how long it stays
    return f"instance {member.number}, exit code {member.stop()}"


@fault(Lane.PROCESS, 0.7)
def members_storm(scene: Scene, chance: random.Random) -> str:
    """Three come at once; one is killed, and the others are told to stop at once."""
    storm = [scene.members.start() for _ in range(STORM)]
    came = sum(joined(member) for member in storm)
    killed, *leaving = storm
    killed.kill()
    codes = stopped_at_once(leaving)
    return f"{came} came, exit codes {codes}" if came else ""


def stopped_at_once(leaving: list[ChaosMember]) -> list[int]:
    """Exit codes of these, all told to stop before the first of them has ended."""
    with ThreadPoolExecutor(len(leaving)) as each:
        return list(each.map(ChaosMember.stop, leaving))


@fault(Lane.PROCESS, 0.4)
def two_with_one_static_id(scene: Scene, chance: random.Random) -> str:
    """The group has one of them at a time; the other one is refused, by that name."""
    properties = json.dumps({"group.instance.id": f"static-{chance.randrange(1000)}"})
    pair = [scene.members.start(ONCEPOOL_KAFKA_PROPERTIES=properties) for _ in range(2)]
    for member in pair:
        # Which of them cannot go on is the broker's choice.
        member.how, member.allowed = "stopped", CODES | {FATAL}

    def refused() -> list[str]:
        return [f"instance {m.number}: {word}" for m in pair for word in FENCED if m.wrote(word)]

    seen = until(lambda: refused() and any(m.said("partitions assigned") for m in pair), 30)
    for member in pair:
        if member.alive:
            member.stop()
    return ", ".join(refused()) if seen else ""


@fault(Lane.PROCESS, 0.2)
def partitions_added(scene: Scene, chance: random.Random) -> str:
    """Seen when the group has given the new one to a member."""
    if scene.partitions >= 24:
        return ""
    added = scene.partitions
    scene.place.add_partitions(scene.name, added + 1)
    scene.partitions += 1
    seen = until(lambda: has_member(scene, added), GIVEN)
    return f"partition {added} has a member" if seen else ""


def has_member(scene: Scene, partition: int) -> bool:
    """Whether the group says that some member has this partition."""
    return partition in partitions_given(scene.place.stack.kafka, scene.name)
