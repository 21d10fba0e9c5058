"""A process that is stopped in its tracks for a while, and seen so."""

from __future__ import annotations

import os
import signal

import psutil

from tests.chaos.real.members import until
from tests.support.service import runs

STOPPED_WITHIN = 2.0
"""Seconds in which the system says that a signal has stopped it."""


def held(pid: int, seconds: float) -> str:
    """Stops a process in its tracks for so long, unless somebody kills it; what was seen."""
    try:
        os.kill(pid, signal.SIGSTOP)
        stopped = until(lambda: is_stopped(pid), STOPPED_WITHIN)
        ended = until(lambda: not runs(pid), seconds)
        if not ended:
            stopped &= is_stopped(pid)
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:  # it ended by itself
        return ""
    how = ", killed meanwhile" if ended else ""
    return f"pid {pid}, seen stopped, for {seconds:.1f} s{how}" if stopped else ""


def is_stopped(pid: int) -> bool:
    """Whether the system says that a signal has stopped it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False
