"""A chunk of one record whose call runs beside others, where its handler is an `async def`."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

from feedback.contract.record import Record
from processing.handlers.handler import Handler
from processing.handlers.request import Request
from processing.worker.chunk_run import ChunkRun
from processing.worker.gate import Gate
from processing.worker.task import Task

LOOP_PATIENCE: Final = 5.0
"""Seconds that the event loop has at least to turn to a call that is to begin."""


class Opener(Protocol):
    """What opens calls. OpenCalls is one."""

    def open(self, chunk: SeatedRun, task: Task, handler: Handler) -> None:
        """Begins a call; its end comes by itself."""

    def tell(self, chunk: int, request: Request[Any], timeout: float) -> None:
        """Before its call code of the app has a request, which shall hear when it is to end."""


class SeatedRun(ChunkRun):
    """Is run up to its call, and after it. What is between belongs to the event loop."""

    seated = True

    def __init__(
        self, number: int, token: str, records: list[Record], gate: Gate, opener: Opener
    ) -> None:
        super().__init__(number, token, records, None, gate)
        self.call: Task | None = None
        """The request whose call is open, or has ended and is not written down yet."""
        self._opener = opener
        self._ended: float | None = None

    @property
    def under_way(self) -> bool:
        return self.call is not None

    def ask(self, request: Request[Any], timeout: float) -> None:
        self._opener.tell(self.number, request, timeout)

    def call_beside(self, task: Task, handler: Handler) -> bool:
        if not handler.asynchronous:
            return False
        # Its own time begins when the loop has turned to it. A loop that does not is blocked.
        self.wait_together(max(task.timeout, LOOP_PATIENCE))
        self._opener.open(self, task, handler)
        self.call = task
        return True

    def clear(self) -> None:
        if self.call is None:
            super().clear()

    def call_ended(self) -> None:
        """Its call runs no more: its deadline is over, whatever is still to be written."""
        self._ended = time.monotonic()
        self._gate.clear()

    @property
    def waited(self) -> float:
        return 0.0 if self._ended is None else time.monotonic() - self._ended
