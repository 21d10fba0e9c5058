"""What a worker is doing right now, in a few bytes of memory that it shares with the main process.

The worker alone writes; the supervisor reads. The chunk's number and the index of the request that
runs are packed into one aligned 8-byte store, so a reader never sees the one without the other. The
deadline is written before them and cleared after them, so a reader that sees the same word before
and after it read the deadline has a deadline that belongs to it.

Times are CLOCK_MONOTONIC seconds, which all processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass

SIZE = 24  # word (8 bytes), deadline (8), start (8)
INDEX_BITS = 20
"""Of the word; the rest is the chunk's number, which an instance never uses up."""
NOBODY = (1 << INDEX_BITS) - 1
IDLE = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Running:
    """One look at a slot."""

    chunk: int
    index: int | None
    """The request that runs; None where no single request can be blamed (a batch)."""
    deadline: float | None
    started: float


class ProgressSlot:
    """A view on the shared bytes, from either side."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        view = memoryview(memory)
        self._word = view[0:8].cast("Q")
        self._times = view[8:SIZE].cast("d")

    @classmethod
    def create(cls) -> tuple[ProgressSlot, int]:
        """A new idle slot, and the descriptor by which a child opens the same bytes."""
        descriptor = _anonymous_memory()
        os.ftruncate(descriptor, SIZE)
        slot = cls.open(descriptor)
        slot.clear()
        return slot, descriptor

    @classmethod
    def open(cls, descriptor: int) -> ProgressSlot:
        """The slot behind `descriptor`."""
        return cls(mmap.mmap(descriptor, SIZE))

    def set(self, chunk: int, index: int | None, now: float, timeout: float | None) -> None:
        """Says that a request (or a batch, index None) of a chunk is about to run."""
        self._times[0] = now + timeout if timeout else 0.0
        self._times[1] = now
        self._word[0] = chunk << INDEX_BITS | (NOBODY if index is None else index)

    def clear(self) -> None:
        """Says that no request runs."""
        self._word[0] = IDLE

    def read(self) -> Running | None:
        """What runs, or None when no request runs or it changed during the look."""
        word = self._word[0]
        deadline, started = self._times[0], self._times[1]
        if word == IDLE or self._word[0] != word:
            return None
        index = word & NOBODY
        chunk = word >> INDEX_BITS
        return Running(chunk, None if index == NOBODY else index, deadline or None, started)

    def close(self) -> None:
        """Unmaps the bytes."""
        self._word.release()
        self._times.release()
        self._memory.close()


def _anonymous_memory() -> int:
    """A descriptor of memory that needs no room in any file system.

    A file in a full one would be SIGBUS at the first write, in main as well.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("oncepool progress")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
