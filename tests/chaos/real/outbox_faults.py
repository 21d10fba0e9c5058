"""Faults of the producer that has an outbox, and of its relays."""

from __future__ import annotations

import random
import signal

from tests.chaos.real.faults import Lane, Scene, fault
from tests.chaos.real.members import until
from tests.chaos.real.outbox_side import PRODUCER, RELAY


def ended(scene: Scene, chance: random.Random, role: str, number: signal.Signals) -> str:
    """The victim is seen to be at work first, so far as that can be: something is open."""
    assert scene.outbox is not None
    busy = scene.outbox.busy
    until(lambda: busy(role), 2)
    return scene.outbox.replace(role, chance, number)


@fault(Lane.PROCESS, 2, of_orders=True)
def relay_killed(scene: Scene, chance: random.Random) -> str:
    """SIGKILL, and another one comes."""
    return ended(scene, chance, RELAY, signal.SIGKILL)


@fault(Lane.PROCESS, 0.5, of_orders=True)
def relay_stopped_gently(scene: Scene, chance: random.Random) -> str:
    """SIGTERM, and another one comes."""
    return ended(scene, chance, RELAY, signal.SIGTERM)


@fault(Lane.PROCESS, 0.5, of_orders=True)
def relay_frozen(scene: Scene, chance: random.Random) -> str:
    """SIGSTOP with shards in hand: their rows wait, those of others go on."""
    assert scene.outbox is not None
    return scene.outbox.freeze(chance, chance.uniform(1, 6))


@fault(Lane.PROCESS, 1, of_orders=True)
def producer_killed(scene: Scene, chance: random.Random) -> str:
    """SIGKILL with orders that are not committed, and another one comes."""
    return ended(scene, chance, PRODUCER, signal.SIGKILL)
