"""Requests with effects outside the database: claimed first, and never run a second time.

The claim is committed before the handler starts. From then on every end but a result, Reject and
Retry leaves the request in doubt, and only its check function or an operator settles it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import psycopg
from structlog.stdlib import BoundLogger

from feedback.contract.states import OK, SHUTDOWN, TIMEOUT, State
from feedback.journal.races import Overtaken
from feedback.journal.rows import StoredRequest
from feedback.journal.writer import JournalWriter
from feedback.status.store import StatusWrite
from processing.handlers.outcomes import Done, NotDone, Outcome, describe, outcome_of
from processing.worker.calls import DONE
from processing.worker.chunk_run import ChunkRun
from processing.worker.records import (
    ResultLog,
    attempts_of,
    final_of,
    row_of,
    running_status,
    status_of,
    stored_status,
    write_follow_ups,
)
from processing.worker.retry_decision import conclude
from processing.worker.session import CommitUnclear, Session
from processing.worker.task import Task


class External:
    """Claims, runs and settles requests one by one."""

    def __init__(
        self,
        session: Session,
        rows: JournalWriter,
        results: ResultLog,
        lease: float,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
    ) -> None:
        self._session = session
        self._rows = rows
        self._results = results
        self._lease = lease
        self._publish = publish
        self._log = log

    def run(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Runs tasks whose rows were looked up; returns those to be looked up again."""
        again: list[Task] = []
        for task in tasks:
            if not chunk.start(task.index, task.timeout):
                chunk.give_back([task])
            elif not self._settle_doubt(task, chunk):
                chunk.settle([task])
            elif self._claim(task, chunk.token):
                self._call(task, chunk.token, chunk)
                chunk.settle([task])
            else:
                again.append(task)
            chunk.clear()
        return again

    def doubt(self, task: Task, stored: StoredRequest, code: str, chunk: ChunkRun) -> None:
        """A claim whose worker died: it may or may not have happened."""
        task.stored = stored
        task.claimed_run = stored.run
        task.lost = 0
        task.deaths = 0 if code in (TIMEOUT, SHUTDOWN) else 1
        task.fingerprint = stored.fingerprint
        task.end(Outcome(State.IN_DOUBT, code, reason="its worker was lost while it ran"))
        self._write_final(task, stored.token or "", chunk)

    def _claim(self, task: Task, token: str) -> bool:
        task.started = None
        task.end(Outcome(State.RUNNING, OK))
        task.used = task.used_before
        row = row_of(task, datetime.now(UTC))
        task.outcome = None
        # One statement in autocommit mode: claimed and committed at once.
        return self._rows.claim(self._session.cursor(), row, task.stored, token, self._lease)

    def _call(self, task: Task, token: str, chunk: ChunkRun) -> None:
        handler, session = task.handler, self._session
        if handler is None:
            raise AssertionError("an external request without a handler")
        task.started = time.time()
        self._publish([running_status(task, datetime.now(UTC))])
        begun = time.perf_counter()
        try:
            if handler.wants_tx:
                session.begin()
            request = task.request() if handler.wants_request else None
            tx = session.handler_cursor(handler.type) if handler.wants_tx else None
            task.end(DONE, handler.call(task.payload, request, tx))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the effect is in doubt
            if handler.wants_tx:
                session.rollback()
                session.forget_cursor(handler.type)
            task.end(outcome_of(error, "external"))
        task.seconds = time.perf_counter() - begun
        try:
            self._write_final(task, token, chunk, begun=handler.wants_tx and session.in_transaction)
        except Overtaken:
            session.rollback()
            self._log.error("the claim was taken away meanwhile", request_id=task.envelope.id)
            task.end(Outcome(State.IN_DOUBT, "claim_lost"))
            now = datetime.now(UTC)
            self._publish([status_of(task, row_of(task, now), now)])
        except psycopg.Error as error:
            session.rollback()
            if session.lost:
                raise
            task.end(outcome_of(error, "external"))
            self._write_final(task, token, chunk)

    def _write_final(self, task: Task, token: str, chunk: ChunkRun, *, begun: bool = False) -> None:
        session = self._session
        if not begun:
            session.begin()
        now, cursor = datetime.now(UTC), session.cursor()
        conclude(task, now, random.random)
        row = row_of(task, now)
        self._rows.finish_claim(cursor, row, token)
        self._rows.add_attempts(cursor, attempts_of(task, now))
        self._results.add(cursor, [task])
        writes = write_follow_ups(self._rows, cursor, [task], now, chunk)
        try:
            session.commit()
        except CommitUnclear as error:
            # The claim stands: an expired lease says in_doubt, the final row says what it was.
            raise psycopg.OperationalError(str(error)) from error
        self._publish([*writes, status_of(task, row, now)])
        chunk.wait_until(final_of(task).due, now)

    def _settle_doubt(self, task: Task, chunk: ChunkRun) -> bool:
        """Asks the check of a request in doubt; False where that settled it or nobody can tell."""
        stored, handler = task.stored, task.handler
        if stored is None or stored.state != State.IN_DOUBT or handler is None:
            return True
        try:
            answer, result = handler.call_check(task.request())
        except BaseException as error:  # noqa: BLE001 - a check that fails has not found out
            self._log.error("check failed", request_id=task.envelope.id, error=describe(error))
            answer, result = None, None
        if isinstance(answer, NotDone):
            return True
        task.claimed_run = stored.run  # the run that it is about, and no other
        if isinstance(answer, Done):
            task.end(DONE, result)
            self._write_final(task, stored.token or "", chunk)
        else:
            task.end(Outcome(State.IN_DOUBT, stored.code, stored.reason, stored.error))
            self._publish([stored_status(task, stored, handler, datetime.now(UTC))])
        return False
