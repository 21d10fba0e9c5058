"""Ends of requests whose effects may have been committed before their rows, as a handler did it.

Run again they would have their effects twice, and no row says that they ran. So they are written
before anything else is done, as long as the worker may try; what cannot be written then is told to
be in doubt, and never given back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from feedback.contract.states import HANDLER_ERROR, State
from feedback.journal.database_errors import is_race
from feedback.status.status import StatusWrite
from processing.handlers.outcomes import Outcome, describe
from processing.logs import BoundLogger
from processing.worker.bad_luck import REDO, pause_after
from processing.worker.calls import DONE
from processing.worker.chunk_run import ChunkRun
from processing.worker.outages import DatabaseAway, Outages
from processing.worker.records import failure_without_row
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.transaction import Transaction
from processing.worker.transaction_ends import ENDED

_UNKNOWN = (
    "another request's handler ended their transaction, and nobody can say what was committed"
)


class LandedEnds:
    """Takes them to their end, whatever the database does."""

    def __init__(
        self,
        session: Session,
        transaction: Transaction,
        outages: Outages,
        *,
        schema: str,
        patience: float,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
    ) -> None:
        """`patience`: seconds in which an outage is waited for."""
        self._session = session
        self._transaction = transaction
        self._outages = outages
        self._schema = schema
        self._patience = patience
        self._publish = publish
        self._log = log

    def write(
        self, before: Sequence[Task], culprits: Sequence[Task], chunk: ChunkRun, *, certain: bool
    ) -> None:
        """Writes how those ended that ran in a transaction that a handler has ended.

        `certain`: it was committed; else perhaps, or what came behind it was. `before`: what ran
        there before any culprit did, unless it is undone. Raises nothing that the database does.
        """
        if not certain:
            for task in before:
                if task.outcome is DONE:
                    task.end(Outcome(State.IN_DOUBT, ENDED.code, reason=_UNKNOWN))
        tasks = chunk.open([*before, *culprits])
        chunk.decided.update(t.index for t in tasks)
        end = time.monotonic() + self._patience
        try:
            if self._written(tasks, chunk, end) is not None:
                for task in tasks:
                    self._write_alone(task, chunk, end)
        except DatabaseAway as away:
            for task in chunk.open(tasks):
                self._leave_in_doubt(task, away, chunk)

    def _write_alone(self, task: Task, chunk: ChunkRun, end: float) -> None:
        error = self._written([task], chunk, end)
        if error is not None and task.outcome is DONE:
            # The journal does not take its result.
            task.end(Outcome(State.IN_DOUBT, HANDLER_ERROR, error=describe(error)))
            error = self._written([task], chunk, end)
        if error is not None:
            self._leave_in_doubt(task, error, chunk)

    def _written(self, tasks: Sequence[Task], chunk: ChunkRun, end: float) -> Exception | None:
        """Writes them together, until `end`; what kept it from that. Raises DatabaseAway."""
        for tries in range(1, REDO + 1):
            left = max(0.0, end - time.monotonic())
            try:
                self._outages.outlast(lambda: self._transaction.run(tasks, chunk, []), left)
            except DatabaseAway:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, they are not run again
                self._session.rollback()
                failed = error
                if not is_race(error, self._schema):
                    break
                time.sleep(pause_after(tries))
            else:
                return None
        return failed

    def _leave_in_doubt(self, task: Task, error: Exception, chunk: ChunkRun) -> None:
        """No row says so: what is known is told, and it is not run for it again."""
        if task.outcome is None or task.outcome.state is not State.IN_DOUBT:
            task.end(Outcome(State.IN_DOUBT, HANDLER_ERROR, error=describe(error)))
        self._log.error("what was committed could not be journaled",
                        request_id=task.envelope.id, type=task.envelope.type,
                        error=describe(error))  # fmt: skip
        self._publish([failure_without_row(task, datetime.now(UTC))])
        chunk.settle([task])
