"""Requests with effects outside the database: claimed first, and never run a second time.

The claim is committed before the handler starts. From then on every end but a result, Reject and
Retry leaves the request in doubt, and only its check function or an operator settles it. What a
call came to is written as long as its claim may hold: that the database restarts meanwhile is no
reason to forget it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import psycopg

from feedback.backend import Backend
from feedback.contract.states import HANDLER_ERROR, OK, State
from feedback.journal.database_errors import Overtaken, is_lock_race, is_stale_plan, is_unfit
from feedback.journal.writer import JournalWriter
from processing.handlers.handler import Handler
from processing.handlers.outcomes import (
    Outcome,
    describe,
    outcome_of,
    safe_text,
)
from processing.logs import BoundLogger
from processing.worker.bad_luck import REDO, out_of_luck, pause_after
from processing.worker.call_ends import CallEnds
from processing.worker.calls import DONE, Calls
from processing.worker.checks import Checks
from processing.worker.chunk_run import ChunkRun
from processing.worker.kept_types import has_outgrown
from processing.worker.lease_keeper import LeaseKeeper
from processing.worker.outages import DatabaseAway, Outages
from processing.worker.records import (
    lost_lines,
    row_of,
)
from processing.worker.session import Session
from processing.worker.task import Task


class EffectExternal:
    """Claims, runs and settles requests one by one."""

    def __init__(
        self,
        session: Session,
        outages: Outages,
        calls: Calls,
        rows: JournalWriter,
        ends: CallEnds,
        leases: LeaseKeeper,
        log: BoundLogger,
    ) -> None:
        self._session, self._rows = session, rows
        self._outages, self._calls = outages, calls
        self._ends, self.checks = ends, Checks(ends, log)
        self._leases, self._lease = leases, leases.lease
        self._log = log

    def run(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Runs tasks that were looked up; returns those to look up again. Raises DatabaseAway."""
        again: list[Task] = []
        for task in tasks:
            handler = task.handler
            if handler is None:
                raise AssertionError("an external request without a handler")
            if not chunk.in_order([task]):
                continue
            if chunk.follows(task, again):
                again.append(task)  # it waits for the end of that one
                continue
            if not chunk.start(task.index, task.timeout):
                chunk.give_back([task])
                continue
            try:
                again += self._run_one(task, handler, chunk)
            except DatabaseAway:
                raise
            except BaseException as bug:  # noqa: BLE001 - nobody thought of it: this request's end
                again += self._end_unforeseen(task, bug, chunk)
            chunk.clear()
        return again

    def end_call(self, task: Task, chunk: ChunkRun) -> list[Task]:
        """A call that went on by itself has ended; returns it where it is to be looked up again.

        Raises DatabaseAway.
        """
        try:
            self._ends.write(task, chunk.token, chunk)
        except DatabaseAway:
            raise
        except BaseException as bug:  # noqa: BLE001 - as in `run`
            return self._end_unforeseen(task, bug, chunk)
        chunk.settle([task])
        return []

    def _run_one(self, task: Task, handler: Handler, chunk: ChunkRun) -> list[Task]:
        """Runs a task; returns it where it is to be looked up again."""
        if task.stored is not None and task.stored.state == State.IN_DOUBT:
            again = self.checks.settle(task, handler, task.stored, chunk)
            if again is not None:
                return again
        chunk.start(task.index, None)  # what waits for a lock has no deadline of the call's
        task.started = None
        if task.end_expired():
            chunk.decided.add(task.index)
            return [task]
        if not self._claim(task, chunk):
            return [task]
        if chunk.call_beside(task, handler):
            return []
        self._call(task, handler, chunk)
        chunk.settle([task])
        return []

    def _end_unforeseen(self, task: Task, bug: BaseException, chunk: ChunkRun) -> list[Task]:
        """What was called is left to its lease; else that it failed is to be written."""
        self._log.error(
            "unexpected", request_id=task.envelope.id, type=task.envelope.type,
            error=describe(bug), exc_info=bug,
        )  # fmt: skip
        self._session.drop()  # nobody knows what it is in the middle of
        self._outages.connect()
        if task.started is not None:
            task.end(outcome_of(bug, "external"))
            chunk.settle([task])
            return []
        task.end(outcome_of(bug))
        chunk.decided.add(task.index)
        return [task]

    # Before the handler

    def _claim(self, task: Task, chunk: ChunkRun) -> bool:
        """Claims it; False where it has to be looked up again, or its end is to be written."""
        task.end(Outcome(State.RUNNING, OK))
        task.used = task.used_before
        row = row_of(task, datetime.now(UTC))
        task.outcome = None
        backend = self._session.backend
        try:
            # In autocommit mode, if time-outs hold there: one statement claims and commits at once.
            with self._session.bounded():
                cursor = self._session.cursor()
                if task.lost:  # whoever finds the claim knows nothing of them
                    self._rows.add_attempts(cursor, lost_lines(task, datetime.now(UTC)))
                claimed = self._rows.claim(cursor, row, task.stored, chunk.token, self._lease)
        except psycopg.Error as error:
            if self._session.lost or self._outages.survive(error):
                found = self._found_claimed(task, backend, chunk)
                return found or self._in_vain(task, error, chunk)
            if is_lock_race(error):
                return self._in_vain(task, error, chunk)
            if is_unfit(error):
                self._outages.blame_database(error)
            return self._end_unclaimed(task, outcome_of(error), chunk)  # no row takes it
        self._outages.committed()
        # A proxy that pools transactions may hide which backend was lost: that one lands after all.
        return claimed or self._found_claimed(task, None, chunk)

    def _in_vain(self, task: Task, error: psycopg.Error, chunk: ChunkRun) -> bool:
        """No claim was made, for no fault of the request's: it is looked up again, a few times."""
        chunk.claims_in_vain[task.index] += 1
        tries = chunk.claims_in_vain[task.index]
        if tries >= REDO or chunk.locked_out(error):
            return self._end_unclaimed(task, out_of_luck(error, tries, task.run), chunk)
        time.sleep(pause_after(tries))
        return False

    def _end_unclaimed(self, task: Task, outcome: Outcome, chunk: ChunkRun) -> bool:
        """Nothing was started, and this is to be written."""
        task.end(outcome)
        chunk.decided.add(task.index)
        return False

    def _found_claimed(self, task: Task, backend: Backend | None, chunk: ChunkRun) -> bool:
        """Whether a claim landed whose answer was lost with the connection to `backend`."""
        try:
            stored = self._outages.outlast(lambda: self._ends.look_up(task, backend), self._lease)
        except (DatabaseAway, psycopg.Error) as unknown:
            chunk.leave_unclear([task])
            raise DatabaseAway(safe_text(unknown)) from unknown
        return stored is not None and (stored.state, stored.token) == (State.RUNNING, chunk.token)

    # The handler, and after it

    def _call(self, task: Task, handler: Handler, chunk: ChunkRun) -> None:
        task.started = time.time()  # from here on it is claimed: nobody says that it failed
        if handler.wants_tx:
            self._outages.outlast(self._session.begin, self._lease)
            self._enter(task, handler, chunk)
        else:
            with self._leases.unused():
                self._enter(task, handler, chunk)
        if handler.wants_tx and self._written_together(task, chunk):
            return
        self._ends.write(task, chunk.token, chunk)

    def _enter(self, task: Task, handler: Handler, chunk: ChunkRun) -> None:
        """Makes the call; what comes before and after it takes what the database takes."""
        chunk.start(task.index, task.timeout)
        self._calls.one(task, handler)
        chunk.clear()

    def _met_stale_plan(self) -> bool:
        """Whether its handler failed for what the server keeps for this connection."""
        failures = self._session.failures
        stale = failures.last is not None and is_stale_plan(failures.last)
        return stale or has_outgrown(failures)

    def _written_together(self, task: Task, chunk: ChunkRun) -> bool:
        """Writes a result in the handler's own transaction; False where that is over.

        Then what the handler did there is undone, so a result is none.
        """
        session = self._session
        if session.lost_by_handler() or task.outcome is not DONE or not session.in_transaction:
            session.rollback()
            if self._met_stale_plan():
                session.drop()  # the next one would be in doubt for the same reason
            if task.outcome is DONE:
                why = "its transaction was lost, and with it what the handler did there"
                task.end(Outcome(State.IN_DOUBT, HANDLER_ERROR, error=why))
            return False
        backend = session.backend
        try:
            session.put_back()
            session.try_constraints(task.timeout)  # else COMMIT does, which has no deadline
            self._ends.write_within(task, chunk.token, chunk)
        except (Overtaken, psycopg.Error) as error:
            session.rollback()
            if isinstance(error, Overtaken) or session.lost:
                # Its row says what became of it, where its COMMIT may have landed as well.
                stored = self._outages.outlast(
                    lambda: self._ends.look_up(task, backend), self._lease
                )
                if stored is not None and stored.state != State.RUNNING:
                    self._ends.tell_stored(task, stored)
                    return True
            task.end(outcome_of(error, "external"))
            return False
        return True
