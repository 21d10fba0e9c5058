"""What the requests of a chunk took, for metrics. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from feedback.contract.states import State
from feedback.metrics.durations import DONE, RUN, WAIT, Durations
from processing.worker.task import Task


class ChunkDurations(Durations):
    """Counts each request once, when its end stands."""

    __slots__ = ()

    def plain(self, tasks: Sequence[Task]) -> None:
        """These are done: messages of new ids."""
        types = {task.envelope.type for task in tasks}
        if len(types) == 1:  # as nearly always
            self._plain(types.pop(), tasks)
            return
        for kind in types:
            self._plain(kind, [task for task in tasks if task.envelope.type == kind])

    def _plain(self, kind: str, tasks: Sequence[Task]) -> None:
        runs = [task.seconds for task in tasks]
        waits = [(task.started or 0.0) - task.envelope.time for task in tasks]
        self.add(kind, DONE, list(map(add, waits, runs)))
        self.add(kind, WAIT, waits)
        self.add(kind, RUN, runs)

    def ended(self, task: Task) -> None:
        """A run has ended, whatever came of it."""
        started, kind = task.started, task.envelope.type
        if started is None:
            return
        self.add(kind, RUN, [task.seconds])
        if task.claim is None:
            self.add(kind, WAIT, [started - task.envelope.time])
        final = task.final or task.outcome
        if final is not None and final.state is State.DONE:
            self.add(kind, DONE, [started + task.seconds - task.produced_at.timestamp()])
