"""Writes what calls outside came to: the final row of a claim, and what is told then."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import psycopg

from feedback.backend import Backend
from feedback.journal.database_errors import Overtaken
from feedback.journal.rows import StoredRequest
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.outcomes import outcome_of
from processing.logs import BoundLogger
from processing.worker.chunk_run import ChunkRun
from processing.worker.outages import Outages
from processing.worker.records import (
    ResultLog,
    attempts_of,
    final_of,
    row_of,
    status_of,
    stored_status,
    write_follow_ups,
)
from processing.worker.retry_decision import conclude
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.traced_runs import Settling


class CallEnds:
    """Ends claims, guarded by their tokens."""

    def __init__(
        self,
        session: Session,
        outages: Outages,
        rows: JournalWriter,
        results: ResultLog,
        *,
        lease: float,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
        settling: Settling,
    ) -> None:
        self._session, self._outages = session, outages
        self._rows, self._results = rows, results
        self._lease, self._settling = lease, settling
        self._publish, self._log = publish, log

    def write(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """Writes what a call came to, as long as anybody may wait for it. Raises DatabaseAway."""
        patience = self._patience(chunk)
        for _ in range(2):
            try:
                self._outages.outlast(lambda: self.write_once(task, token, chunk), patience)
                return
            except psycopg.Error as error:
                # The journal does not take it: then that is what there is to say.
                self._session.rollback()
                task.end(outcome_of(error, "external"))
        self._log.error("the end of a call could not be journaled: its claim runs out",
                        request_id=task.envelope.id, type=task.envelope.type)  # fmt: skip

    def write_within(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """The final row in its handler's transaction, which waits for that as long as `write` does.

        Raises DatabaseAway, and as `write_final`.
        """
        self._outages.outlast(
            lambda: self.write_final(task, token, chunk), self._patience(chunk), within=True
        )

    def _patience(self, chunk: ChunkRun) -> float:
        return self._lease - chunk.waited

    def write_once(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """The final row in a transaction of its own; what the row says where it is not the claim's.

        May be done twice: where it was written and the answer lost, the row says just that.
        """
        session = self._session
        session.begin()
        try:
            self.write_final(task, token, chunk)
        except Overtaken:
            session.rollback()
            stored = self.look_up(task)
            final = final_of(task).state
            # One more where it was in doubt meanwhile.
            if stored is None or stored.state != final or stored.run - task.run not in (0, 1):
                self._log.error("the claim was taken away meanwhile", request_id=task.envelope.id)
            if stored is not None:
                self.tell_stored(task, stored)

    def write_final(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """The final row, in the transaction that is open. Raises Overtaken and psycopg.Error."""
        now, clock, cursor = datetime.now(UTC), self._session.clock, self._session.cursor()
        conclude(task, clock.now(), random.random)
        row = row_of(task, now)
        with self._settling((), (task,)):
            row.run = self._rows.finish_claim(cursor, row, token)
            self._rows.add_attempts(cursor, attempts_of(task, now))
            self._results.add(cursor, [task])
            if task.doubted_attempt is not None and task.claim is None:
                # A copy, which was answered without a run.
                self._rows.add_resends(cursor, {row.id: task.record})
            writes = write_follow_ups(self._rows, cursor, [task], clock.now(), now, chunk)
            written, of_database = datetime.now(UTC), clock.now()
            self._session.commit()
        self._publish([*writes, status_of(task, row, written, now=of_database)])
        chunk.wait_until(final_of(task).due, of_database)

    def tell_stored(self, task: Task, stored: StoredRequest) -> None:
        self._publish([stored_status(task, stored, task.handler, datetime.now(UTC))])

    def look_up(self, task: Task, backend: Backend | None = None) -> StoredRequest | None:
        """Its row, once the backend has gone that a statement may be at work in yet."""
        self._session.end_former(backend)
        return self._rows.find(self._session.cursor(), [task.envelope.id]).get(task.envelope.id)

    def stays_in_doubt(self, stored: StoredRequest) -> None:
        """Its check was asked, and could not tell. Raises psycopg.Error."""
        self._session.begin()
        self._rows.stays_in_doubt(self._session.cursor(), stored.id, stored.token or "")
        self._session.commit()
