"""A clock that jumps: what time it is in the main and worker processes of one run.

The offset stands in a file that every process has mapped, so a jump is seen by all at once, in the
middle of whatever they do. `time.time()`, `datetime.now()` and all their like follow; the monotonic
clock, which nobody can set, does not.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

import time_machine

OFFSET = struct.Struct("d")


class JumpingClock:
    """The test's side."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0.0)

    def set(self, offset: float) -> None:
        """Seconds by which the clock is ahead."""
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:
            file.write(OFFSET.pack(offset))


def follow() -> None:
    """Makes this process's clock follow the file that CHAOS_CLOCK names."""
    with Path(os.environ["CHAOS_CLOCK"]).open("rb") as file:
        held = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    real = time_machine.escape_hatch.time.time_ns

    def jumping() -> int:
        return real() + round(OFFSET.unpack_from(held)[0] * 1_000_000_000)

    traveller = time_machine.travel(time.time()).start()
    traveller.time_ns = jumping  # type: ignore[method-assign]
