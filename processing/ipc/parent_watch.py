"""Ties a child process to its parent, so that nothing is left behind when the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
WATCH_INTERVAL = 1.0
EXIT_ORPHANED = 86


def tie_to_parent(parent_pid: int) -> None:
    """Ends this process when `parent_pid` is no longer its parent.

    On Linux the kernel sends SIGKILL at the parent's death. A thread that watches the parent's pid
    stands behind it: it serves other systems, and it ends a process whose parent died before the
    request to the kernel was in place.
    """
    _signal_at_its_death(signal.SIGKILL)
    # After prctl, not before: a parent that died in between would otherwise never be noticed.
    _exit_if_orphaned(parent_pid)
    threading.Thread(target=_watch, args=(parent_pid,), name="parent-watch", daemon=True).start()


def end_with_parent(parent_pid: int) -> None:
    """Sends this process SIGTERM, once, when `parent_pid` is no longer its parent.

    To be called before handlers of SIGTERM are there: a parent that has died already ends it.
    """
    by_kernel = _signal_at_its_death(signal.SIGTERM)
    if os.getppid() != parent_pid:
        sys.exit(EXIT_ORPHANED)
    if not by_kernel:
        watch = threading.Thread(
            target=_ask_to_end, args=(parent_pid,), name="parent-watch", daemon=True
        )
        watch.start()


def _signal_at_its_death(number: signal.Signals) -> bool:
    """Asks the kernel for a signal at the parent's death; False where it knows no such thing."""
    if sys.platform != "linux":
        return False
    asked = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    return bool(asked == 0)


def _ask_to_end(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(WATCH_INTERVAL)
    os.kill(os.getpid(), signal.SIGTERM)


def _watch(parent_pid: int) -> None:
    while True:
        time.sleep(WATCH_INTERVAL)
        _exit_if_orphaned(parent_pid)


def _exit_if_orphaned(parent_pid: int) -> None:
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)
