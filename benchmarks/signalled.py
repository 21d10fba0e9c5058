"""Programs that have nothing to read wait for signals: to begin what is measured, and to end."""

from __future__ import annotations

import signal
import sys

BEGIN, END = signal.SIGUSR1, signal.SIGTERM
AWAITED = {BEGIN, END}


def expect() -> None:
    """Keeps both until they are waited for; before any thread is started."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


def wait_to_begin() -> None:
    """Returns at BEGIN; ends the program at END."""
    if signal.sigwait(AWAITED) == END:
        sys.exit(0)


def wait_to_end() -> None:
    """Stays, so that the CPU that it has used can be read; returns at END."""
    while signal.sigwait(AWAITED) != END:
        pass
