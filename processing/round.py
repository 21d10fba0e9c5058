"""One transaction of a chunk: look up, run what has to run, write, COMMIT, tell.

What goes wrong is raised; `transactions.py` decides what is done then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from feedback.rows import Rows
from feedback.states import CONFLICT, DUPLICATE
from feedback.store import StatusWrite
from processing.chunk import Job
from processing.ending import attempts_of, row_of, status_of, stored_status
from processing.external import External
from processing.handler import Handler
from processing.segments import Segments
from processing.session import Session
from processing.task import Task
from processing.triage import Sorted, conflict_letter, sort_out


class Round:
    """Takes tasks of different ids through one transaction."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        session: Session,
        rows: Rows,
        segments: Segments,
        external: External,
        publish: Callable[[list[StatusWrite]], None],
    ) -> None:
        self._handlers = handlers
        self._session = session
        self._rows = rows
        self._segments = segments
        self._external = external
        self._publish = publish

    def run(self, tasks: Sequence[Task], job: Job) -> list[Task]:
        """One transaction; returns what is left for the next one.

        Raises Broken, Overtaken, CommitUnclear and what psycopg raises.
        """
        session = self._session
        session.begin()
        cursor = session.cursor()
        found = self._rows.find(cursor, [t.envelope.id for t in tasks])
        fate = sort_out(tasks, found, job.decided)
        ran, recalled, left = self._segments.run(fate.fresh, job.work)
        job.work.finish()
        fate.ended += ran
        now = datetime.now(UTC)
        self._write(cursor, fate, now)
        session.commit()
        self._tell(fate, now, job)
        job.give_back(recalled)
        return left + self._external.run(fate.external, job)

    def _write(self, cursor: psycopg.Cursor[Any], fate: Sorted, now: datetime) -> None:
        """Journal rows, in the order that all chunks keep: locks, COPY, updates."""
        rows, ended = self._rows, fate.ended
        if fate.answered:
            rows.add_resends(cursor, [t.envelope.id for t in fate.answered])
        if new := [row_of(t, now) for t in ended if t.stored is None]:
            rows.insert(cursor, new)
        if changed := [(row_of(t, now), t.stored) for t in ended if t.stored is not None]:
            rows.update(cursor, changed)
        for task in fate.conflicts:
            rows.add_letter(cursor, conflict_letter(task))
        if attempts := [line for t in ended for line in attempts_of(t, now)]:
            rows.add_attempts(cursor, attempts)

    def _tell(self, fate: Sorted, now: datetime, job: Job) -> None:
        """After COMMIT: publish, count."""
        writes = [status_of(t, now) for t in fate.ended]
        for task in fate.answered:
            writes += self._standing(task, now)
            job.counts[task.envelope.type, task.stored.state if task.stored else "", DUPLICATE] += 1
        for task in fate.conflicts:
            # Its own status may have expired: whoever sent another payload sees what stands there.
            writes += self._standing(task, now)
            job.counts[task.envelope.type, "dead_letter", CONFLICT] += 1
        self._publish(writes)
        job.settle(fate.ended)
        job.settled.update(t.index for t in fate.answered)
        job.settled.update(t.index for t in fate.conflicts)

    def _standing(self, task: Task, now: datetime) -> list[StatusWrite]:
        """The status of the row under its id, which may be of another type."""
        if task.stored is None:
            return []
        return [stored_status(task, task.stored, self._handlers.get(task.stored.type), now)]
