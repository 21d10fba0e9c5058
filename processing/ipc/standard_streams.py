"""Standard streams that are closed, broken, full or never read: survived."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
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


def say_at_once(text: str, patience: float = 0.0) -> None:
    """Writes lines to standard error as far as that takes them within `patience` seconds.

    Waits for no lock either: the main thread may be stuck in a write, and holds it then.
    """
    left, end = memoryview(text.encode() + b"\n"), time.monotonic() + patience
    room = select.poll()
    room.register(STDERR, select.POLLOUT)
    with contextlib.suppress(OSError):
        while left and room.poll(max(0.0, end - time.monotonic()) * 1000):
            left = left[os.write(STDERR, left[: select.PIPE_BUF]) :]


def exit_at_once(code: int) -> NoReturn:
    """Ends the process, whatever threads it still has and wherever its output went."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
