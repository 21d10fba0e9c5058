"""Faults of worker processes and of the maintenance process."""

from __future__ import annotations

import os
import random
import signal
import time

from tests.chaos.real.faults import Lane, Scene, fault
from tests.chaos.real.members import until
from tests.support.service import runs

PATIENCE = 6.0
"""Seconds in which some worker comes by a point."""


def ordered(scene: Scene, point: str, harm: str, *, dies: bool = True) -> str:
    """Has the worker that comes by a point first do harm; seen once its process is gone."""
    found = scene.orders.give(point, harm).evidence(PATIENCE)
    if found is None:
        return ""
    if dies and not until(lambda: not runs(found["pid"]), 30):
        return ""
    return f"{point} {harm}: pid {found['pid']} {found['about']}"


@fault(Lane.PROCESS, 2)
def worker_killed(scene: Scene, chance: random.Random) -> str:
    """At whatever it does."""
    found = scene.members.worker(chance)
    if found is None:
        return ""
    member, pid = found
    os.kill(pid, signal.SIGKILL)
    gone = until(lambda: not runs(pid), 10) and until(lambda: pid not in member.children(), 10)
    return f"pid {pid}" if gone else ""


@fault(Lane.PROCESS, 2)
def worker_killed_before_lookup(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "before_lookup", "kill")


@fault(Lane.PROCESS, 2)
def worker_killed_in_handler(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "in_handler", "kill")


@fault(Lane.PROCESS, 2)
def worker_killed_before_commit(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "before_commit", "kill")


@fault(Lane.PROCESS, 2)
def worker_killed_after_commit(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "after_commit", "kill")


@fault(Lane.PROCESS, 2)
def worker_killed_before_report(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "before_report", "kill")


@fault(Lane.PROCESS)
def worker_segfault(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "in_handler", "segfault")


@fault(Lane.PROCESS)
def worker_out_of_memory(scene: Scene, chance: random.Random) -> str:
    """The handler gets a MemoryError at the limit of the worker's address space."""
    return ordered(scene, "in_handler", "eat", dies=False)


@fault(Lane.PROCESS, 0.5)
def worker_handler_hangs(scene: Scene, chance: random.Random) -> str:
    """Ended at its timeout."""
    return ordered(scene, "in_handler", "hang")


@fault(Lane.PROCESS)
def worker_holds_the_gil(scene: Scene, chance: random.Random) -> str:
    return ordered(scene, "in_handler", f"hold {chance.uniform(1, 3):.1f}", dies=False)


@fault(Lane.PROCESS)
def worker_stopped(scene: Scene, chance: random.Random) -> str:
    """SIGSTOP for a while, which may be longer than its request's timeout."""
    found = scene.members.worker(chance)
    if found is None:
        return ""
    _, pid = found
    os.kill(pid, signal.SIGSTOP)
    seconds = chance.choice((0.5, 2.0, 8.0))
    until(lambda: not runs(pid), seconds)
    ended = not runs(pid)
    if not ended:
        os.kill(pid, signal.SIGCONT)
    return f"pid {pid} for {seconds} s{', killed meanwhile' if ended else ''}"


def maintenance_of(scene: Scene, chance: random.Random) -> int | None:
    member = scene.members.pick(chance)
    found = member.children("processing.maintenance") if member else []
    return found[0] if found else None


@fault(Lane.PROCESS)
def maintenance_killed(scene: Scene, chance: random.Random) -> str:
    pid = maintenance_of(scene, chance)
    if pid is None:
        return ""
    before = scene.members.said("the maintenance process died")
    os.kill(pid, signal.SIGKILL)
    seen = until(lambda: scene.members.said("the maintenance process died") > before, 15)
    return f"pid {pid}" if seen else ""


@fault(Lane.PROCESS, 0.5)
def maintenance_stopped(scene: Scene, chance: random.Random) -> str:
    pid = maintenance_of(scene, chance)
    if pid is None:
        return ""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(2, 6))  # how long it is stopped
    if runs(pid):
        os.kill(pid, signal.SIGCONT)
    return f"pid {pid}"
