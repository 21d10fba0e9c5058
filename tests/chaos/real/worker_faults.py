"""Faults of worker processes and of the maintenance process."""

from __future__ import annotations

import os
import random
import signal
import time

from tests.chaos.real.faults import FAULTS, Fault, Lane, Scene, fault
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


def ordered_fault(
    kind: str, point: str, harm: str, weight: float = 1.0, *, dies: bool = True
) -> None:
    """Registers harm at a point as a kind of fault."""
    FAULTS[kind] = Fault(
        kind, Lane.PROCESS, lambda scene, _: ordered(scene, point, harm, dies=dies), weight
    )


for at in ("before_lookup", "in_handler", "before_commit", "after_commit", "before_report"):
    ordered_fault(f"worker_killed_{at}", at, "kill", 2)
ordered_fault("worker_segfault", "in_handler", "segfault")
# The handler gets a MemoryError at the limit of the worker's address space.
ordered_fault("worker_out_of_memory", "in_handler", "eat", dies=False)
# Ended at its timeout.
ordered_fault("worker_handler_hangs", "in_handler", "hang", 0.5)


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
