"""Standard streams that are closed, broken, full or never read: survived."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import Final, NoReturn

STDERR: Final = 2


def open_missing() -> None:
    """Has all three descriptors lead somewhere: what was closed leads nowhere.

    Else the next file or socket would get its number, and whatever a library or a child prints
    would go there.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def say_at_once(line: str) -> None:
    """Writes a line to standard error where that takes it; waits for nothing, not even a lock.

    The main thread may be stuck in a write to it, and holds its lock then.
    """
    with contextlib.suppress(OSError):
        _, writable, _ = select.select([], [STDERR], [], 0)
        if writable:
            os.write(STDERR, line.encode() + b"\n")


def exit_at_once(code: int) -> NoReturn:
    """Ends the process, whatever threads it still has and wherever its output went."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
