"""Faults of the gateway, and of the connections to it."""

from __future__ import annotations

import random
import signal

from tests.chaos.real.faults import Lane, Scene, cut_for, cut_once, fault
from tests.chaos.real.members import until


def ended(scene: Scene, number: signal.Signals) -> str:
    """It is seen to be at work first, so far as that can be: somebody waits for its answer."""
    gateway = scene.gateway
    assert gateway is not None
    until(lambda: gateway.calls > 0, 2)
    return gateway.replace(number)


@fault(Lane.PROCESS, 1, of_gateway=True)
def gateway_killed(scene: Scene, chance: random.Random) -> str:
    """SIGKILL with calls that are not answered, and another one comes."""
    return ended(scene, signal.SIGKILL)


@fault(Lane.PROCESS, 0.5, of_gateway=True)
def gateway_stopped_gently(scene: Scene, chance: random.Random) -> str:
    """SIGTERM: it answers what it has, and another one comes."""
    return ended(scene, signal.SIGTERM)


@fault(Lane.PROCESS, 0.5, of_gateway=True)
def gateway_frozen(scene: Scene, chance: random.Random) -> str:
    """SIGSTOP with calls that are not answered."""
    assert scene.gateway is not None
    return scene.gateway.freeze(chance.uniform(1, 6))


@fault(Lane.SERVICE, 0.7, of_gateway=True)
def gateway_connections_cut(scene: Scene, chance: random.Random) -> str:
    """Those of its callers: what it answers is lost, and they ask again."""
    assert scene.gateway is not None
    return cut_once([scene.gateway.gate])


@fault(Lane.SERVICE, 0.5, of_gateway=True)
def gateway_unreachable(scene: Scene, chance: random.Random) -> str:
    """For its callers."""
    assert scene.gateway is not None
    return cut_for([scene.gateway.gate], chance.uniform(0.5, 3))
