"""Requests with effects outside the database: claimed first, and never run a second time.

The claim is committed before the handler starts. From then on every end but a result, Reject and
Retry leaves the request in doubt, and only its check function or an operator settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import psycopg
from structlog.stdlib import BoundLogger

from feedback.rows import Overtaken, Rows, Stored
from feedback.states import OK, State
from feedback.store import StatusWrite
from processing.outcomes import Done, NotDone, Outcome, outcome_of
from processing.segments import DONE, Work
from processing.session import CommitUnclear, Session
from processing.task import Task

KILL_MARGIN = 15.0
"""Seconds beyond a request's deadline for which its lease holds: by then it was killed."""


class Ledger(Protocol):
    """What the executor keeps of a chunk."""

    def settle(self, task: Task, *, returned: bool = False) -> None:
        """A task needs nothing more."""


class External:
    """Claims, runs and settles requests one by one."""

    def __init__(
        self,
        session: Session,
        rows: Rows,
        lease: float,
        publish: Callable[[list[StatusWrite]], None],
        on_start: Callable[[Task], None],
        log: BoundLogger,
    ) -> None:
        self._session = session
        self._rows = rows
        self._lease = lease
        self._publish = publish
        self._on_start = on_start
        self._log = log

    def run(self, tasks: Sequence[Task], token: str, work: Work, ledger: Ledger) -> list[Task]:
        """Runs tasks whose rows were looked up; returns those to be looked up again."""
        again: list[Task] = []
        for task in tasks:
            if not work.start(task.index, task.timeout):
                ledger.settle(task, returned=True)
            elif not self._settle_doubt(task):
                self._tell(task, ledger)
            elif self._claim(task, token):
                self._on_start(task)
                self._call(task, token)
                self._tell(task, ledger)
            else:
                again.append(task)
            work.finish()
        return again

    def doubt(self, task: Task, stored: Stored, code: str) -> None:
        """A claim whose worker died: it may or may not have happened."""
        task.stored = stored._replace(run=stored.run - 1)
        task.fingerprint = stored.fingerprint
        task.end(Outcome(State.IN_DOUBT, code, reason="its worker was lost while it ran"))
        self._write_final(task, stored.token or "")
        self._publish([task.status(datetime.now(UTC))])

    def _claim(self, task: Task, token: str) -> bool:
        was = task.stored
        task.end(Outcome(State.RUNNING, OK))
        lease = max(self._lease, task.timeout + KILL_MARGIN)
        row = task.row(datetime.now(UTC))
        task.outcome = None
        # One statement in autocommit mode: claimed and committed at once.
        return self._rows.claim(self._session.cursor(), row, was, token, lease)

    def _call(self, task: Task, token: str) -> None:
        handler, session = task.handler, self._session
        if handler is None:
            raise AssertionError("an external request without a handler")
        request = task.request() if handler.wants_request else None
        begun = datetime.now(UTC)
        try:
            if handler.wants_tx:
                session.begin()
            tx = session.handler_cursor() if handler.wants_tx else None
            task.end(DONE, handler.call(task.payload, request, tx))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the effect is in doubt
            if handler.wants_tx:
                session.rollback()
            task.end(outcome_of(error, "external"))
        task.seconds = (datetime.now(UTC) - begun).total_seconds()
        try:
            self._write_final(task, token, begun=handler.wants_tx and session.in_transaction)
        except Overtaken:
            session.rollback()
            self._log.error("the claim was taken away meanwhile", request_id=task.envelope.id)
            task.end(Outcome(State.IN_DOUBT, "claim_lost"))
        except psycopg.Error as error:
            session.rollback()
            if session.lost:
                raise
            task.end(outcome_of(error, "external"))
            self._write_final(task, token)

    def _write_final(self, task: Task, token: str, *, begun: bool = False) -> None:
        session = self._session
        if not begun:
            session.begin()
        now = datetime.now(UTC)
        row = task.row(now)
        self._rows.finish_claim(session.cursor(), row, token)
        if row.state != State.DONE:
            self._rows.add_attempt(session.cursor(), row, now)
        try:
            session.commit()
        except CommitUnclear as error:
            # The claim stands: an expired lease says in_doubt, the final row says what it was.
            raise psycopg.OperationalError(str(error)) from error

    def _settle_doubt(self, task: Task) -> bool:
        """Asks the check of a request in doubt; False where that settled it or nobody can tell."""
        stored, handler = task.stored, task.handler
        if stored is None or stored.state != State.IN_DOUBT or handler is None:
            return True
        task.stored = stored._replace(run=stored.run - 1)
        try:
            answer, result = handler.call_check(task.request())
        except Exception as error:  # noqa: BLE001 - a check that fails has not found out
            self._log.error("check failed", request_id=task.envelope.id, error=str(error))
            answer, result = None, None
        task.stored = stored
        if isinstance(answer, NotDone):
            return True
        if isinstance(answer, Done):
            task.stored = stored._replace(run=stored.run - 1)
            task.end(DONE, result)
            self._write_final(task, stored.token or "")
        else:
            task.stored = stored._replace(run=stored.run - 1)
            task.end(Outcome(State.IN_DOUBT, stored.code, stored.reason, stored.error))
        return False

    def _tell(self, task: Task, ledger: Ledger) -> None:
        self._publish([task.status(datetime.now(UTC))])
        ledger.settle(task)
