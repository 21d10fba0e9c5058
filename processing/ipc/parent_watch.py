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
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # After prctl, not before: a parent that died in between would otherwise never be noticed.
    _exit_if_orphaned(parent_pid)
    threading.Thread(target=_watch, args=(parent_pid,), name="parent-watch", daemon=True).start()


def _watch(parent_pid: int) -> None:
    while True:
        time.sleep(WATCH_INTERVAL)
        _exit_if_orphaned(parent_pid)


def _exit_if_orphaned(parent_pid: int) -> None:
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)
