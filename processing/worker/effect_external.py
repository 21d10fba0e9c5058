"""Requests with effects outside the database: claimed first, and never run a second time.

The claim is committed before the handler starts. From then on every end but a result, Reject and
Retry leaves the request in doubt, and only its check function or an operator settles it. What a
call came to is written as long as its claim may hold: that the database restarts meanwhile is no
reason to forget it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import psycopg

from feedback.backend import Backend
from feedback.contract.states import EXPIRED, HANDLER_ERROR, OK, State
from feedback.journal.database_errors import Overtaken, is_lock_race, is_stale_plan
from feedback.journal.rows import StoredRequest
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.handler import Handler
from processing.handlers.outcomes import (
    Done,
    NotDone,
    Outcome,
    describe,
    outcome_of,
    safe_text,
)
from processing.logs import BoundLogger
from processing.worker.bad_luck import REDO, out_of_luck, pause_after
from processing.worker.calls import DONE, Calls
from processing.worker.checks import ask_check
from processing.worker.chunk_run import ChunkRun
from processing.worker.dedup import has_expired
from processing.worker.outages import DatabaseAway, Outages
from processing.worker.records import (
    ResultLog,
    attempts_of,
    final_of,
    lost_lines,
    row_of,
    status_of,
    stored_status,
    write_follow_ups,
)
from processing.worker.retry_decision import conclude
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.traced_runs import Settling

_TOO_LATE = "its call did not happen, and it has expired since"


class EffectExternal:
    """Claims, runs and settles requests one by one."""

    def __init__(
        self,
        session: Session,
        outages: Outages,
        calls: Calls,
        rows: JournalWriter,
        results: ResultLog,
        *,
        lease: float,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
        settling: Settling,
    ) -> None:
        self._session, self._settling = session, settling
        self._outages, self._calls = outages, calls
        self._rows, self._results = rows, results
        self._lease = lease
        self._publish, self._log = publish, log

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
            self._write(task, chunk.token, chunk)
        except DatabaseAway:
            raise
        except BaseException as bug:  # noqa: BLE001 - as in `run`
            return self._end_unforeseen(task, bug, chunk)
        chunk.settle([task])
        return []

    def _run_one(self, task: Task, handler: Handler, chunk: ChunkRun) -> list[Task]:
        """Runs a task; returns it where it is to be looked up again."""
        if task.stored is not None and task.stored.state == State.IN_DOUBT:
            again = self._settle_doubt(task, handler, task.stored, chunk)
            if again is not None:
                return again
        chunk.start(task.index, None)  # what waits for a lock has no deadline of the call's
        if not self._claim(task, chunk):
            return [task]
        if chunk.call_beside(task, handler):
            return []
        chunk.start(task.index, task.timeout)  # what came before it is not the call's time
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

    def end_lost(
        self, task: Task, stored: StoredRequest, doubt: Outcome, not_done: Outcome | None,
        chunk: ChunkRun,
    ) -> None:  # fmt: skip
        """The end of a claim whose worker died: `doubt`, or what its check finds out.

        The check is asked where there is a `not_done`, which is the end where nothing happened.
        Raises psycopg.Error.
        """
        task.stored = stored
        task.claimed_run = stored.run
        task.lost = 0  # what was lost before its claim was written with that
        task.fingerprint = stored.fingerprint
        task.hold_open = False  # whoever claimed it had read it
        task.end(doubt)
        if not_done is not None and task.handler is not None:
            answer, result = ask_check(task, task.handler, chunk, self._log)
            if isinstance(answer, Done):
                task.end(DONE, result)
            elif isinstance(answer, NotDone):
                task.end(not_done)
        self._write_once(task, stored.token or "", chunk)
        chunk.settle([task])

    # Before the handler

    def _claim(self, task: Task, chunk: ChunkRun) -> bool:
        """Claims it; False where it has to be looked up again, or its end is to be written."""
        task.started = None
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
            stored = self._outages.outlast(lambda: self._look_up(task, backend), self._lease)
        except (DatabaseAway, psycopg.Error) as unknown:
            chunk.leave_unclear([task])
            raise DatabaseAway(safe_text(unknown)) from unknown
        return stored is not None and (stored.state, stored.token) == (State.RUNNING, chunk.token)

    def _look_up(self, task: Task, backend: Backend | None = None) -> StoredRequest | None:
        """Its row, once the backend has gone that a statement may be at work in yet."""
        self._session.end_former(backend)
        return self._rows.find(self._session.cursor(), [task.envelope.id]).get(task.envelope.id)

    # The handler, and after it

    def _call(self, task: Task, handler: Handler, chunk: ChunkRun) -> None:
        task.started = time.time()  # from here on it is claimed: nobody says that it failed
        if handler.wants_tx:
            self._outages.outlast(self._session.begin, self._lease)
        self._calls.one(task, handler)
        chunk.clear()
        if handler.wants_tx and self._written_together(task, chunk):
            return
        self._write(task, chunk.token, chunk)

    def _written_together(self, task: Task, chunk: ChunkRun) -> bool:
        """Writes a result in the handler's own transaction; False where that is over.

        Then what the handler did there is undone, so a result is none.
        """
        session = self._session
        if session.lost_by_handler() or task.outcome is not DONE or not session.in_transaction:
            session.rollback()
            if (error := session.failures.last) is not None and is_stale_plan(error):
                session.drop()  # the next one would be in doubt for the same reason
            if task.outcome is DONE:
                why = "its transaction was lost, and with it what the handler did there"
                task.end(Outcome(State.IN_DOUBT, HANDLER_ERROR, error=why))
            return False
        backend = session.backend
        try:
            session.put_back()
            self._write_final(task, chunk.token, chunk)
        except (Overtaken, psycopg.Error) as error:
            session.rollback()
            if isinstance(error, Overtaken) or session.lost:
                # Its row says what became of it, where its COMMIT may have landed as well.
                stored = self._outages.outlast(lambda: self._look_up(task, backend), self._lease)
                if stored is not None and stored.state != State.RUNNING:
                    self._tell_stored(task, stored)
                    return True
            task.end(outcome_of(error, "external"))
            return False
        return True

    def _write(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """Writes what a call came to, as long as anybody may wait for it. Raises DatabaseAway."""
        patience = self._lease - chunk.waited
        for _ in range(2):
            try:
                self._outages.outlast(lambda: self._write_once(task, token, chunk), patience)
                return
            except psycopg.Error as error:
                # The journal does not take it: then that is what there is to say.
                self._session.rollback()
                task.end(outcome_of(error, "external"))
        self._log.error("the end of a call could not be journaled: its claim runs out",
                        request_id=task.envelope.id, type=task.envelope.type)  # fmt: skip

    def _write_once(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """The final row in a transaction of its own; what the row says where it is not the claim's.

        May be done twice: where it was written and the answer lost, the row says just that.
        """
        session = self._session
        session.begin()
        try:
            self._write_final(task, token, chunk)
        except Overtaken:
            session.rollback()
            stored = self._look_up(task)
            final = final_of(task).state
            # One more where it was in doubt meanwhile.
            if stored is None or stored.state != final or stored.run - task.run not in (0, 1):
                self._log.error("the claim was taken away meanwhile", request_id=task.envelope.id)
            if stored is not None:
                self._tell_stored(task, stored)

    def _write_final(self, task: Task, token: str, chunk: ChunkRun) -> None:
        """The final row, in the transaction that is open. Raises Overtaken and psycopg.Error."""
        now, clock, cursor = datetime.now(UTC), self._session.clock, self._session.cursor()
        conclude(task, clock.now(), random.random)
        row = row_of(task, now)
        with self._settling((), (task,)):
            row.run = self._rows.finish_claim(cursor, row, token)
            self._rows.add_attempts(cursor, attempts_of(task, now))
            self._results.add(cursor, [task])
            if task.doubted_attempt is not None:  # a copy, which was answered without a run
                self._rows.add_resends(cursor, {row.id: task.record})
            writes = write_follow_ups(self._rows, cursor, [task], clock.now(), now, chunk)
            written, of_database = datetime.now(UTC), clock.now()
            self._session.commit()
        self._publish([*writes, status_of(task, row, written, now=of_database)])
        chunk.wait_until(final_of(task).due, of_database)

    def _tell_stored(self, task: Task, stored: StoredRequest) -> None:
        self._publish([stored_status(task, stored, task.handler, datetime.now(UTC))])

    def _settle_doubt(
        self, task: Task, handler: Handler, stored: StoredRequest, chunk: ChunkRun
    ) -> list[Task] | None:
        """Asks the check of a request in doubt; None where nothing happened, so that it is to run.

        Where that settled it, nothing is left; where nobody can tell, it is to be answered as any
        copy of what has ended. No start is counted: what is found out is the end of the last one.
        """
        task.doubted_attempt = stored.attempt
        answer, result = ask_check(task, handler, chunk, self._log)
        task.lost, task.losses = 0, []  # what died asked, and was no start
        if isinstance(answer, Done):
            task.end(DONE, result)
        elif isinstance(answer, NotDone) and has_expired(task):
            task.end(Outcome(State.REJECTED, EXPIRED, reason=_TOO_LATE))
        else:
            task.doubted_attempt = None
            if isinstance(answer, NotDone):
                return None
            task.asked_run = stored.run
            return [task]
        task.claimed_run = stored.run
        self._write(task, stored.token or "", chunk)
        chunk.settle([task])
        return []
