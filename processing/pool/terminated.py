"""What a worker was told of a request that it runs."""

from __future__ import annotations

from typing import Final, NamedTuple

from processing.ipc.progress import Running

LOOP_BLOCKED: Final = "its event loop is blocked"
"""No verdict: the request waits for the loop, and is not at fault."""


class Terminated(NamedTuple):
    """A worker was asked to end the request that it runs."""

    running: Running
    at: float
    why: str
    """The verdict on the request where its worker has to be killed for it, or LOOP_BLOCKED."""
    reason: str | None = None
    """What the producer is told of it; None: what the verdict says by itself."""
    killed: bool = False
    """It did not end, so its worker was sent SIGKILL."""

    def is_about(self, chunk: int, index: int | None) -> bool:
        """Whether this is the request; it may have been shown with another deadline since."""
        return self.running.chunk == chunk and self.running.index in (index, None)
