"""A process that is forked while another thread is in a lock: that thread is not in the copy."""

from __future__ import annotations

import os
import signal

from feedback.contract import ids
from feedback.outbox import rows
from feedback.outbox.rows import row_of

HANGS = 10
"""Seconds."""


def in_a_fork() -> int:
    """Makes rows in a forked process; its process id."""
    if child := os.fork():
        return child
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(HANGS)
    try:
        row_of("t", {}, {"request_id": "r"})
        row_of("t", {}, {})
        os._exit(0)
    finally:
        os._exit(1)


def test_a_forked_process_adds_whatever_another_thread_was_at() -> None:
    for lock in (ids._lock, rows._CLOCK._lock):
        with lock:
            child = in_a_fork()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert not lock.locked()
    row_of("t", {}, {})
