"""Faults of the machine: its disk, and what a process may have of it."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil

from tests.chaos.real.faults import Lane, Scene, fault
from tests.chaos.real.members import until
from tests.chaos.real.place import Place
from tests.chaos.real.process_limit import ProcessLimit, can_limit_processes
from tests.support.service import runs

STARTED = 30.0
"""Seconds in which another worker has started."""


def has_temporary(place: Place) -> bool:
    return place.temporary.mounted


@fault(Lane.PROCESS, 1, has_temporary)
def temporary_folder_full(scene: Scene, chance: random.Random) -> str:
    """While it is full a worker is killed, and another one has to start.

    Seen by a write of our own, and by a worker that is new.
    """
    found = scene.members.worker(chance)
    if found is None:
        return ""
    member, pid = found
    before = set(member.children())
    filled = scene.place.temporary.fill()
    try:
        os.kill(pid, signal.SIGKILL)
        gone, full = until(lambda: not runs(pid), 10), scene.place.temporary.is_full()
        time.sleep(chance.uniform(0.5, 2))  # how long
        full &= scene.place.temporary.is_full()
    finally:
        scene.place.temporary.free()
    new = until(lambda: set(member.children()) - before, STARTED)
    killed = f"worker {pid} of instance {member.number} killed, another one came"
    return f"{filled >> 20} MiB, {killed}" if gone and full and new else ""


@fault(Lane.PROCESS, 1)
def descriptors_exhausted(scene: Scene, chance: random.Random) -> str:
    """The main process may open no more files; a worker dies and cannot be replaced meanwhile."""
    member = scene.members.pick(chance)
    workers = member.children() if member else []
    if member is None or not workers:
        return ""
    process = psutil.Process(member.pid)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    before = member.said("a worker could not be started")
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds(), hard))
    try:
        os.kill(chance.choice(workers), signal.SIGKILL)
        seen = until(lambda: member.said("a worker could not be started") > before, 8)
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    return f"instance {member.number}" if seen else ""


def limits_processes(place: Place) -> bool:
    return can_limit_processes()


@fault(Lane.PROCESS, 1, limits_processes)
def processes_exhausted(scene: Scene, chance: random.Random) -> str:
    """An instance may have no more processes and threads; a worker dies meanwhile."""
    member = scene.members.pick(chance)
    workers = member.children() if member else []
    limit = ProcessLimit.made(f"oncepool-{os.getpid()}") if member and workers else None
    if member is None or limit is None:
        return ""
    before = member.said("a worker could not be started")
    try:
        limit.bind([member.pid, *workers, *member.children("processing.maintenance")])
        os.kill(chance.choice(workers), signal.SIGKILL)
        seen = until(lambda: member.said("a worker could not be started") > before, 8)
    finally:
        limit.close()
    return f"instance {member.number}" if seen else ""


@fault(Lane.SERVICE)
def clocks_jump(scene: Scene, chance: random.Random) -> str:
    """All at once, ahead or back; seen in the times that handlers note."""
    offset = chance.choice((-3600.0, -60.0, 60.0, 3600.0))
    scene.clock.set(offset)
    try:
        seen = until(lambda: abs(_last_entry(scene) - time.time() - offset) < abs(offset) / 2, 6)
        time.sleep(chance.uniform(0.5, 3))  # how long
    finally:
        scene.clock.set(0.0)
    return f"{offset:+.0f} s" if seen else ""


def _last_entry(scene: Scene) -> float:
    """When the handler that was entered last was, by its own clock."""
    with scene.entries.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        whole = log.read().rpartition(b"\n")[0]
    return float(whole.rpartition(b"\t")[2] or 0)
