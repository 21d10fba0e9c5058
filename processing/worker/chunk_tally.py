"""What a chunk's report says of the requests that have ended: how many, how long, which failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from feedback.contract.counts import Count
from feedback.contract.record import kind_of
from feedback.contract.states import OK, State
from processing.worker.chunk_durations import ChunkDurations
from processing.worker.task import Task


class ChunkTally:
    """Of one chunk; it belongs to the thread that runs it."""

    def __init__(self) -> None:
        self.counts: Counter[Count] = Counter()
        self.times: dict[str, tuple[int, float]] = {}
        """Kind -> (requests, seconds in handlers)."""
        self.failed: list[Task] = []
        """Those whose handler raised what was neither Reject nor Retry, and those that are dead: to
        be reported."""
        self.durations: ChunkDurations | None = None
        """For metrics; None where nobody wants them."""

    def ended(self, tasks: Iterable[Task]) -> None:
        """These have ended, each in its way."""
        for task in tasks:
            final = task.final or task.outcome
            raised = task.outcome is not None and task.outcome.raised is not None
            if raised or (final is not None and final.state is State.DEAD):
                self.failed.append(task)
            if final is not None:
                self.counts[Count(task.envelope.type, final.state, final.code)] += 1
            if task.started is not None:
                self._took(task.kind, 1, task.seconds)
                if self.durations is not None:
                    self.durations.ended(task)

    def done(self, tasks: Sequence[Task]) -> None:
        """These are done: counted and measured by their types."""
        for kind, number in Counter([task.envelope.type for task in tasks]).items():
            self.counts[Count(kind, State.DONE, OK)] += number
        measured: dict[str, list[float]] = {}
        for task in tasks:
            measured.setdefault(kind_of(task.record), []).append(task.seconds)
        for kind, seconds in measured.items():
            self._took(kind, len(seconds), sum(seconds))
        if self.durations is not None and tasks:
            self.durations.plain(tasks)

    def _took(self, kind: str, number: int, seconds: float) -> None:
        count, so_far = self.times.get(kind, (0, 0.0))
        self.times[kind] = (count + number, so_far + seconds)

    def plain_counts(self) -> dict[tuple[str, str, str], int]:
        """As plain text, since they cross the channel."""
        return {(str(c.type), str(c.state), str(c.code)): n for c, n in self.counts.items()}
