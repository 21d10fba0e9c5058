"""What a worker is doing right now, in a few bytes of memory that it shares with the main process.

The worker alone writes; the supervisor reads. The chunk's number and the index of the request that
runs are packed into one aligned 8-byte store, so a reader never sees the one without the other. The
deadline is written before them and cleared after them, so a reader that sees the same word before
and after it read the deadline has a deadline that belongs to it.

The same memory has a slot for each call of an `async def` handler that may be open, its seat, and
one for the stage: which of these calls the event loop is in at this moment.

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
SEATS = 1000
"""Calls that one worker may have open."""
_STAGE, _FIRST_SEAT = 1, 2
_WHOLE = (_FIRST_SEAT + SEATS) * SIZE


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

    def __init__(self, memory: mmap.mmap, place: int = 0) -> None:
        self._memory = memory
        view = memoryview(memory)[place * SIZE : (place + 1) * SIZE]
        self._word = view[0:8].cast("Q")
        self._times = view[8:SIZE].cast("d")
        self._others: dict[int, ProgressSlot] = {}

    @classmethod
    def create(cls) -> tuple[ProgressSlot, int]:
        """A new idle slot, and the descriptor by which a child opens the same bytes."""
        descriptor = _anonymous_memory()
        try:
            os.ftruncate(descriptor, _WHOLE)
            memory = mmap.mmap(descriptor, _WHOLE)
        except BaseException:  # it has a descriptor of its own: there may be none
            os.close(descriptor)
            raise
        memory[:] = b"\xff" * _WHOLE  # every one of them idle
        return cls(memory), descriptor

    @classmethod
    def open(cls, descriptor: int) -> ProgressSlot:
        """The slot behind `descriptor`."""
        return cls(mmap.mmap(descriptor, _WHOLE))

    @property
    def stage(self) -> ProgressSlot:
        """The slot of the call that the event loop is in; idle while it waits."""
        return self._other(_STAGE)

    def seat(self, number: int) -> ProgressSlot:
        """The slot of an open call."""
        return self._other(_FIRST_SEAT + number)

    def _other(self, place: int) -> ProgressSlot:
        found = self._others.get(place)
        if found is None:
            found = self._others[place] = ProgressSlot(self._memory, place)
        return found

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
        self._release()
        for slot in self._others.values():
            slot._release()  # noqa: SLF001 - it is one of ours
        self._memory.close()

    def _release(self) -> None:
        self._word.release()
        self._times.release()


def _anonymous_memory() -> int:
    """A descriptor of memory that needs no room in any file system.

    A file in a full one would be SIGBUS at the first write, in main as well.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("oncepool progress")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
