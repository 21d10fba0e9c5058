"""Requests with effect="none": pure computation, with no row and no transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from feedback.states import State
from feedback.store import StatusWrite
from processing.chunk import Job
from processing.ending import status_of
from processing.outcomes import outcome_of
from processing.segments import Segments
from processing.suspects import lost
from processing.task import Task


class Plain:
    """Runs them; their results are in Redis only."""

    def __init__(self, segments: Segments, publish: Callable[[list[StatusWrite]], None]) -> None:
        self._segments = segments
        self._publish = publish

    def run(self, tasks: Sequence[Task], job: Job) -> list[Task]:
        """Runs those of `tasks` that are such; returns the others."""
        mine = [t for t in tasks if t.effect == "none" and t.outcome is None]
        if not mine:
            return list(tasks)
        verdict = job.chunk.suspect.verdict if job.chunk.suspect else None
        for group in _groups(mine):
            if verdict:
                for task in group:
                    task.end(lost(verdict))
            else:
                self._run(group, job)
            self._tell(job.open(group), job)
        return [t for t in tasks if t.index not in job.settled]

    def _run(self, group: Sequence[Task], job: Job) -> None:
        try:
            _, recalled, _ = self._segments.run(group, job.work)
        except BaseException as error:  # noqa: BLE001 - of user code: it ends these, not the worker
            recalled = []
            for task in group:
                if task.outcome is None:
                    task.end(outcome_of(error))
        job.give_back(recalled)

    def _tell(self, ran: Sequence[Task], job: Job) -> None:
        now = datetime.now(UTC)
        # No row says which run it is: the store takes the one after the standing status's.
        self._publish([status_of(t, now, bump=_failed(t)) for t in ran])
        job.settle(ran)


def _failed(task: Task) -> bool:
    return task.outcome is not None and task.outcome.state is State.FAILED


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """Single handlers together, each batch handler for itself."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        batch = task.handler is not None and task.handler.batch
        found.setdefault(task.envelope.type if batch else "", []).append(task)
    return list(found.values())
