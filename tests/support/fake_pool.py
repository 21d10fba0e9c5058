"""A pool without processes: what the consumer's tests hand records to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from feedback.record import Record, record_size


class FakePool:
    """Finishes requests in `step`, all of them or at most so many; notes what it was given.

    Follows the `WorkerPool` protocol of the loop.
    """

    def __init__(self, on_submit: Callable[[Sequence[Record]], None] | None = None) -> None:
        self.database_up = True
        self.per_step: int | None = None
        """Requests finished in one step; None: all of them."""
        self.keep = True
        """Whether to remember the records."""
        self.submitted: list[Record] = []
        self.queue: list[Record] = []
        self.in_hand_bytes = 0
        self.most_in_hand = 0
        self.steps = 0
        self._on_submit = on_submit

    @property
    def in_hand(self) -> int:
        return len(self.queue)

    @property
    def pending(self) -> bool:
        return bool(self.queue)

    def submit(self, records: Sequence[Record]) -> None:
        if self._on_submit is not None:
            self._on_submit(records)
        if self.keep:
            self.submitted.extend(records)
        self.queue.extend(records)
        self.in_hand_bytes += sum(map(record_size, records))
        self.most_in_hand = max(self.most_in_hand, len(self.queue))

    def step(self, timeout: float) -> None:
        self.steps += 1
        count = len(self.queue) if self.per_step is None else self.per_step
        done, self.queue = self.queue[:count], self.queue[count:]
        self.in_hand_bytes -= sum(map(record_size, done))
        if not done and timeout:
            time.sleep(timeout)
