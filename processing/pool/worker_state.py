"""What the pool knows of one worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from feedback.backend import Backend
from processing.pool.chunk import Chunk
from processing.pool.seats import Seats
from processing.pool.terminated import Terminated

CHUNKS_IN_FLIGHT: Final = 2
UNANSWERED: Final = 5.0
"""Seconds after which a worker that has lost its connection tries for itself: no maintenance
process can start, or it hangs. What it is given comes back where the database is away."""
WORKER_STATES: Final = ("starting", "idle", "busy", "suspended", "leaving")


@dataclass(slots=True)
class Worker:
    """One worker process, as the pool sees it."""

    number: int
    started_at: float
    ready: bool = False
    late: bool = False
    """It was ended as it was not ready in time."""
    leaving: bool = False
    """It was told to stop: it gets nothing more, and its exit is no death."""
    ends_by: float | None = None
    """When it has had its time to end, once it has nothing left to do."""
    suspended: bool = False
    """It lost its connection: it gets nothing until the maintenance process has looked, or nobody
    has for some seconds."""
    suspended_since: float | None = None
    """When it was first seen so."""
    cut_off: bool = False
    """It has not got one since, though it may have tried: that somebody else reaches the database,
    on a connection that stands, says nothing of new ones."""
    chunks: list[Chunk] = field(default_factory=list)
    """In flight, in the order in which the worker runs them."""
    backends: list[Backend] = field(default_factory=list)
    """Its database backends since it began with the first of its chunks, and the one before."""
    returns: int = 0
    """Frames by which it has given records back."""
    terminated: Terminated | None = None
    """The request that it was asked to end last."""
    seats: Seats = field(default_factory=Seats)
    """Where its calls are. While it has any, all its chunks are calls."""
    recalled: int = -1
    """Number of the chunk whose unstarted rest was called back last."""

    def resume(self) -> None:
        """It may be given something again, and finds out itself whether it can connect."""
        self.suspended, self.suspended_since = False, None

    def look_at_suspension(self, now: float) -> None:
        """Ends it where nobody has answered for too long."""
        if not self.suspended:
            return
        if self.suspended_since is None:
            self.suspended_since = now
        elif now - self.suspended_since >= UNANSWERED:
            self.resume()

    def take_first(self, number: int) -> Chunk | None:
        """Takes its first chunk, or whichever call this is; None where it is another's number."""
        for place, chunk in enumerate(self.chunks):
            if chunk.number == number:
                self.seats.leave(chunk)
                return self.chunks.pop(place)
            if chunk.seat is None:
                break
        return None

    @property
    def state(self) -> str:
        """One of WORKER_STATES."""
        if self.leaving:
            return "leaving"
        if not self.ready:
            return "starting"
        if self.suspended:
            return "suspended"
        return "busy" if self.chunks else "idle"

    @property
    def takes_chunks(self) -> bool:
        """It may be given something."""
        return self.ready and not self.leaving and not self.suspended

    @property
    def may_prefetch(self) -> bool:
        """It may have a chunk more: nothing waits behind a request that goes alone or is late."""
        if not 0 < len(self.chunks) < CHUNKS_IN_FLIGHT:
            return False
        return not self.chunks[0].alone and self.recalled != self.chunks[0].number
