"""Which signals ask a lasting process for its end."""

from __future__ import annotations

import signal

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP comes when a terminal is closed: without a handler that would lose what is in hand."""


def handled() -> list[signal.Signals]:
    """Those to act on: all of them, but not SIGHUP where nohup has had it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in HANDLED if number is not signal.SIGHUP or not ignored]
