"""Faults of the brokers, and of the connections to them."""

from __future__ import annotations

import random
import time

from confluent_kafka import KafkaException, TopicCollection

from tests.chaos.real.faults import Lane, Scene, cut_for, cut_once, fault, silent_for
from tests.chaos.real.members import until
from tests.chaos.real.place import Place
from tests.support.kafka_frames import is_offset_commit

PATIENCE = 6.0


def has_many_brokers(place: Place) -> bool:
    return place.brokers > 1


def state_of(scene: Scene, node: int) -> str:
    return next(s.state for s in scene.place.stack.status() if s.name == f"kafka-{node}")


@fault(Lane.SERVICE, 0.4)
def broker_killed(scene: Scene, chance: random.Random) -> str:
    node = chance.randrange(scene.place.brokers) + 1
    before = scene.members.said("broker connection")
    scene.place.stack.stop_broker(node, kill=True)
    gone = state_of(scene, node) == "stopped"
    time.sleep(chance.uniform(0, 3))  # how long it is away
    scene.place.stack.start_broker(node)
    seen = gone and until(lambda: scene.members.said("broker connection") > before, PATIENCE)
    return f"broker {node}" if seen else ""


@fault(Lane.SERVICE, 0.1)
def brokers_restarted(scene: Scene, chance: random.Random) -> str:
    """One after the other, each told to end."""
    before = scene.members.said("broker connection")
    for node in range(1, scene.place.brokers + 1):
        scene.place.stack.stop_broker(node)
        scene.place.stack.start_broker(node)
    seen = until(lambda: scene.members.said("broker connection") > before, PATIENCE)
    return f"{scene.place.brokers} brokers" if seen else ""


@fault(Lane.SERVICE, 0.6)
def broker_paused(scene: Scene, chance: random.Random) -> str:
    node = chance.randrange(scene.place.brokers) + 1
    scene.place.stack.pause_broker(node)
    held = state_of(scene, node) == "paused"
    time.sleep(chance.uniform(1, 5))  # how long it is held
    scene.place.stack.resume_broker(node)
    return f"broker {node}" if held else ""


def leaders(scene: Scene) -> list[int]:
    described = scene.place.admin.describe_topics(TopicCollection([scene.name]))
    topic = described[scene.name].result(10)
    return [p.leader.id if p.leader else -1 for p in topic.partitions]


def led_by_others(scene: Scene, node: int) -> bool:
    try:
        return node not in leaders(scene)
    except (KafkaException, TimeoutError):
        return False  # it asked the one that is gone


@fault(Lane.SERVICE, 0.3, has_many_brokers)
def leaders_moved(scene: Scene, chance: random.Random) -> str:
    """The leaders of one broker go to others; it comes back as a follower."""
    before = leaders(scene)
    node = chance.choice(before)
    if node < 1:
        return ""
    scene.place.stack.stop_broker(node)
    try:
        moved = until(lambda: led_by_others(scene, node), 15)
    finally:
        scene.place.stack.start_broker(node)
    return f"{before.count(node)} partitions from broker {node}" if moved else ""


@fault(Lane.SERVICE, 1.5)
def kafka_connections_cut(scene: Scene, chance: random.Random) -> str:
    return cut_once(scene.place.kafka_gates)


@fault(Lane.SERVICE)
def kafka_unreachable(scene: Scene, chance: random.Random) -> str:
    return cut_for(scene.place.kafka_gates, chance.uniform(0.5, 3))


@fault(Lane.SERVICE)
def kafka_silent(scene: Scene, chance: random.Random) -> str:
    return silent_for(scene.place.kafka_gates, chance.uniform(1, 6))


def commit_reply(scene: Scene, delay: float | None) -> str:
    """Whichever broker takes the next commit of offsets."""
    wishes = [gate.wish(is_offset_commit, delay) for gate in scene.place.kafka_gates]
    seen = until(lambda: any(wish.fulfilled.is_set() for wish in wishes), PATIENCE)
    if seen and delay:
        time.sleep(delay)  # it is being held
    for gate in scene.place.kafka_gates:
        gate.mend()
    return ("lost with its connection" if delay is None else f"{delay:.1f} s late") * seen


@fault(Lane.SERVICE, 3)
def commit_reply_lost(scene: Scene, chance: random.Random) -> str:
    return commit_reply(scene, None)


@fault(Lane.SERVICE, 1)
def commit_reply_late(scene: Scene, chance: random.Random) -> str:
    return commit_reply(scene, chance.choice((1.0, 3.0, 10.0)))
