"""Server processes that live on after the one that started them.

A process of the stack is known by two things that the system tells about it: its program, and that
its working directory lies in the service's folder. So it is found again by any later process, also
when its parent was killed, a recorded pid now belongs to somebody else, or nothing was recorded.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stack.errors import MissingPackage
from stack.waiting import pauses

try:
    import psutil
    from psutil import Process
except ImportError as error:  # pragma: no cover - an installation without the extra
    raise MissingPackage("psutil", "local") from error

PROGRAMS = frozenset({"java", "postgres", "initdb", "valkey-server"})
KILL_TIMEOUT = 10.0
"""Seconds that killed servers have to be gone."""

__all__ = [
    "Process",
    "is_paused",
    "kill_all",
    "process_of",
    "processes_in",
    "reap",
    "send",
    "spawn",
    "until_gone",
]

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Services that this process started: kept so that their exit is reaped."""


def spawn(
    command: Sequence[str | Path],
    folder: Path,
    log: Path,
    *,
    user: int | None = None,
) -> int:
    """Starts a server in `folder`, its output appended to `log`, and returns its pid.

    It gets a session of its own, so that Ctrl-C in a terminal does not reach it, and nothing of
    this process's descriptors. `user` is the id of the user and group that it runs as.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    _children[child.pid] = child
    return child.pid


def reap() -> None:
    """Takes note of servers that this process started and that have ended."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def processes_in(folder: Path) -> list[Process]:
    """All living processes of servers that work in `folder` or below it."""
    reap()
    return [p for p in psutil.process_iter(["name"]) if _belongs(p, folder)]


def process_of(pid: int, folder: Path) -> Process | None:
    """The living server process with this pid, if it works in `folder`."""
    reap()
    try:
        process = Process(pid)
    except (psutil.NoSuchProcess, ValueError):
        return None
    return process if _belongs(process, folder) else None


def _belongs(process: Process, folder: Path) -> bool:
    try:
        return (
            process.name() in PROGRAMS
            and process.status() != psutil.STATUS_ZOMBIE
            # The system adds " (deleted)" to the path of a removed directory; parents keep theirs.
            and folder in (place := Path(process.cwd()), *place.parents)
        )
    except (psutil.Error, FileNotFoundError):  # the latter from older versions, as it ends
        return False


def is_paused(process: Process) -> bool:
    """True for a process that a SIGSTOP holds."""
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def send(processes: Sequence[Process], number: signal.Signals) -> None:
    """Sends a signal to each, those that are gone by now left out."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def until_gone(folder: Path, timeout: float) -> bool:
    """Waits until no server works in `folder`; False when some still do after `timeout` seconds."""
    return any(not processes_in(folder) for _ in pauses(timeout))


def kill_all(folder: Path) -> bool:
    """Kills every server in `folder`; children that appear meanwhile too. False: some are left."""
    for _ in pauses(KILL_TIMEOUT):
        left = processes_in(folder)
        if not left:
            return True
        # SIGKILL ends a process that SIGSTOP holds, too.
        send(left, signal.SIGKILL)
    return False
