"""Faults of worker processes and of the maintenance process."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil

from processing.pool.maintenance_link import SILENCE
from tests.chaos.real.faults import FAULTS, Fault, Lane, Scene, fault
from tests.chaos.real.frozen import held
from tests.chaos.real.members import ChaosMember, until
from tests.support.service import runs

PATIENCE = 6.0
"""Seconds in which some worker comes by a point."""
FAILED = 30.0
"""Seconds in which a handler has taken all memory that it gets."""
HUNG = 0.5
"""Share of the stopped maintenance processes that hang until they are replaced."""
STARTED = 15.0
"""Age in seconds at which it has said something: until then more silence is borne."""
REPLACED = 15.0
"""Seconds that a main process has for it beyond the silence that it bears."""
SILENT = "the maintenance process does not answer: replacing it"


def ordered(scene: Scene, point: str, harm: str) -> str:
    """Has the worker that comes by a point first do harm; seen once its process is gone."""
    found = scene.orders.give(point, harm).evidence(PATIENCE)
    if found is None or not until(lambda: not runs(found["pid"]), 30):
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


def ordered_fault(kind: str, point: str, harm: str, weight: float = 1.0) -> None:
    """Registers harm at a point as a kind of fault."""
    FAULTS[kind] = Fault(kind, Lane.PROCESS, lambda scene, _: ordered(scene, point, harm), weight)


for at in ("before_lookup", "in_handler", "before_commit", "after_commit", "before_report"):
    ordered_fault(f"worker_killed_{at}", at, "kill", 2)
ordered_fault("worker_segfault", "in_handler", "segfault")
# Ended at its timeout.
ordered_fault("worker_handler_hangs", "in_handler", "hang", 0.5)


@fault(Lane.PROCESS)
def worker_out_of_memory(scene: Scene, chance: random.Random) -> str:
    """A handler gets a MemoryError at the limit of the worker's memory, as it notes itself.

    What is done again after it, alone, has the memory.
    """
    found = scene.orders.give("in_handler", "eat").evidence(PATIENCE)
    if found is None or not until(lambda: scene.orders.ran_out_of_memory(found["pid"]), FAILED):
        return ""
    return f"in_handler: pid {found['pid']} {found['about']} had no memory left"


@fault(Lane.PROCESS)
def worker_holds_the_gil(scene: Scene, chance: random.Random) -> str:
    """Nothing else of its process runs meanwhile: it is over when the handler goes on."""
    seconds = chance.uniform(1, 3)
    found = scene.orders.give("in_handler", f"hold {seconds:.1f}").evidence(PATIENCE)
    if found is None:
        return ""
    time.sleep(max(0.0, found["at"] + seconds - time.time()))  # how long it is held
    return f"in_handler: pid {found['pid']} {found['about']} for {seconds:.1f} s"


@fault(Lane.PROCESS)
def worker_stopped(scene: Scene, chance: random.Random) -> str:
    """SIGSTOP for a while, which may be longer than its request's timeout."""
    found = scene.members.worker(chance)
    if found is None:
        return ""
    _, pid = found
    seconds = chance.choice((0.5, 2.0, 8.0))
    return held(pid, seconds)


def maintenance_of(scene: Scene, chance: random.Random) -> tuple[ChaosMember, int] | None:
    member = scene.members.pick(chance)
    found = member.children("processing.maintenance") if member else []
    return (member, found[0]) if member and found else None


@fault(Lane.PROCESS)
def maintenance_killed(scene: Scene, chance: random.Random) -> str:
    found = maintenance_of(scene, chance)
    if found is None:
        return ""
    member, pid = found
    before = member.said("the maintenance process died")
    os.kill(pid, signal.SIGKILL)
    seen = until(lambda: member.said("the maintenance process died") > before, 15)
    return f"pid {pid}" if seen else ""


@fault(Lane.PROCESS, 0.8)
def maintenance_stopped(scene: Scene, chance: random.Random) -> str:
    """For some seconds; every other time so long that its main process has to replace it."""
    found = maintenance_of(scene, chance)
    if found is None:
        return ""
    member, pid = found
    if chance.random() < HUNG and time.time() - psutil.Process(pid).create_time() > STARTED:
        return replaced(member, pid)
    return held(pid, chance.uniform(2, 6))


def replaced(member: ChaosMember, pid: int) -> str:
    """Holds a maintenance process until its main process has put another in its place."""
    before, began = member.said(SILENT), time.monotonic()
    stopped = held(pid, SILENCE + REPLACED)
    seconds = time.monotonic() - began
    assert not runs(pid), f"a maintenance process hung for {seconds:.0f} s and was not replaced"
    other = until(lambda: member.children("processing.maintenance"), REPLACED)
    seen = stopped and other and member.said(SILENT) > before
    return f"{stopped}, replaced after {seconds:.1f} s" if seen else ""
