"""What becomes of clients in a process that is forked: they stay with the one that made them.

Threads are not copied with a process, so a copy of a client would take requests and send nothing;
and when it is freed, at the latest at the end of the process, librdkafka waits for its threads.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Final, Protocol

from feedback.after_fork import after_fork

FORKED: Final = (
    "this client was made before its process was forked, and is of no use here: make one in each "
    "process, after the fork"
)


class Forkable(Protocol):
    """What has to know that it is a copy."""

    def forked(self) -> None:
        """Called in the new process, where no other thread runs."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(one: Forkable) -> None:
    """Has it told in each process that is forked off while it is there."""
    _known.add(one)


def never_free(handle: object) -> None:
    """Keeps a librdkafka handle that has lost its threads, also at the end of the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def _tell() -> None:
    for one in list(_known):
        one.forked()


after_fork(_tell)
