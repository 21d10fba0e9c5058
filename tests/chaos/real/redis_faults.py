"""Faults of Valkey, and of the connections to it."""

from __future__ import annotations

import random
import time

import redis

from tests.chaos.real.faults import Lane, Scene, cut_for, cut_once, fault, paused_for


@fault(Lane.SERVICE)
def redis_killed(scene: Scene, chance: random.Random) -> str:
    """Everything that it held is gone."""
    scene.place.stack.stop_redis(kill=True)
    time.sleep(chance.uniform(0, 2))  # how long it is away
    scene.place.stack.start_redis()
    with scene.place.redis() as client:
        uptime = client.info("server")["uptime_in_seconds"]
    return "killed" if uptime < 5 else ""


@fault(Lane.SERVICE)
def redis_flushed(scene: Scene, chance: random.Random) -> str:
    with scene.place.redis() as client:
        held = client.dbsize()
        client.flushall()
    return f"{held} keys" if held else ""


@fault(Lane.SERVICE)
def redis_paused(scene: Scene, chance: random.Random) -> str:
    return paused_for(scene, "redis", chance.uniform(0.5, 4))


@fault(Lane.SERVICE)
def redis_slow(scene: Scene, chance: random.Random) -> str:
    gate = scene.place.redis_gate
    gate.delay, before = 0.3, gate.passed
    time.sleep(chance.uniform(1, 4))  # how long
    gate.delay = 0.0
    return "0.3 s each way" if gate.passed > before else ""


@fault(Lane.SERVICE)
def redis_unreachable(scene: Scene, chance: random.Random) -> str:
    return cut_for([scene.place.redis_gate], chance.uniform(0.5, 3))


@fault(Lane.SERVICE)
def redis_connections_cut(scene: Scene, chance: random.Random) -> str:
    return cut_once([scene.place.redis_gate])


@fault(Lane.SERVICE)
def redis_memory_full(scene: Scene, chance: random.Random) -> str:
    with scene.place.redis() as client:
        client.config_set("maxmemory", "1mb")
        try:
            try:
                client.set("chaos", "x")
                refused = False
            except redis.OutOfMemoryError:
                refused = True
            time.sleep(chance.uniform(1, 3))  # how long
        finally:
            client.config_set("maxmemory", "0")
    return "writes refused" if refused else ""
