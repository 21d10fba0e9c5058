"""Takes requests to their end, in as few transactions as go well.

What was overtaken by another copy is redone from the look-up; what cannot be committed together is
halved down to the one request at fault, which then ends with that error. So is whatever nobody
thought of: it is the end of one request, never of its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import psycopg
from structlog.stdlib import BoundLogger

from feedback.contract.states import State
from feedback.journal.races import Overtaken
from feedback.status.store import StatusWrite
from processing.handlers.outcomes import Outcome, describe, outcome_of, safe_text
from processing.worker.chunk_run import ChunkRun
from processing.worker.effect_transaction import ENDED, Broken
from processing.worker.grouping import once_each
from processing.worker.records import row_of, status_of
from processing.worker.session import CommitUnclear, Session
from processing.worker.task import Task
from processing.worker.transaction import Round

REDO = 10
"""Tries of a chunk that loses a race, before it is halved."""
RACES = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)


class Transactions:
    """Runs rounds until every task has ended."""

    def __init__(
        self,
        session: Session,
        round: Round,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
    ) -> None:
        self._session = session
        self._round = round
        self._publish = publish
        self._log = log

    def run(self, tasks: Sequence[Task], chunk: ChunkRun) -> None:
        """Takes tasks of one group to their end.

        Raises psycopg.OperationalError where the database is away, and nothing else.
        """
        rest = list(tasks)
        while rest:
            first, rest = once_each(rest)
            self._transact(first, chunk)

    def fail(self, tasks: Sequence[Task], error: BaseException, chunk: ChunkRun) -> None:
        """Finds the one task at fault by halves; it ends with `error`."""
        tasks = chunk.open(tasks)
        if len(tasks) > 1:
            middle = len(tasks) // 2
            self._transact(tasks[:middle], chunk)
            self._transact(tasks[middle:], chunk)
        elif tasks and tasks[0].index not in chunk.decided:
            tasks[0].end(outcome_of(error))
            chunk.decided.add(tasks[0].index)
            self._transact(tasks, chunk)
        elif tasks:
            self._log.error(
                "a failure could not be journaled",
                request_id=tasks[0].envelope.id,
                type=tasks[0].envelope.type,
                error=describe(error),
            )
            now = datetime.now(UTC)
            self._publish([status_of(tasks[0], row_of(tasks[0], now), now, bump=True)])
            chunk.settle(tasks)

    def _transact(self, tasks: list[Task], chunk: ChunkRun) -> None:
        tries = REDO
        while tasks and tries:
            tries -= 1
            try:
                tasks = self._round.run(tasks, chunk)
                tries = REDO
            except Broken as broken:
                self._after_broken(broken, chunk)
            except CommitUnclear:
                unclear = [t.index for t in chunk.open(tasks)]
                chunk.unclear += unclear
                chunk.settled.update(unclear)
                raise psycopg.OperationalError("the answer to COMMIT was lost") from None
            except (Overtaken, *RACES) as error:
                tasks = self._after_race(error, tasks, chunk)
            except psycopg.Error as error:
                self._session.rollback()
                if self._session.lost:
                    raise
                if not _is_taken_id(error):
                    self.fail(tasks, error, chunk)
                    return
            except BaseException as error:  # noqa: BLE001 - of user code, or our own bug: one request's end
                self._log.error("unexpected", error=describe(error), exc_info=error)
                self._session.drop()  # nobody knows what it is in the middle of
                self._session.connect()
                self.fail(tasks, error, chunk)
                return
            tasks = chunk.open(tasks)
        if tasks:
            self.fail(tasks, Overtaken(f"still overtaken after {REDO} tries"), chunk)

    def _after_race(self, error: Exception, tasks: list[Task], chunk: ChunkRun) -> list[Task]:
        """Another transaction was in the way: what to take from the look-up again."""
        self._session.rollback()
        self._log.debug("redone from the look-up", why=safe_text(error))
        if not isinstance(error, psycopg.errors.DeadlockDetected) or len(tasks) == 1:
            return tasks
        # The same chunk would meet the same other one again: fewer locks are held at once.
        middle = len(tasks) // 2
        self._transact(tasks[:middle], chunk)
        return tasks[middle:]

    def _after_broken(self, broken: Broken, chunk: ChunkRun) -> None:
        """A handler ended the transaction, or its connection broke under it."""
        session, culprits, backend = self._session, broken.culprits, self._session.backend
        session.rollback()
        session.connect()  # raises where the database is away: then it was not the handler
        if backend is not None and backend != session.backend:
            session.end_backend(backend)  # it may still be at work on what the handler sent
        landed = broken.xid != 0 and session.committed(broken.xid)
        known = broken.known or all(t.index in chunk.again for t in culprits)
        if not landed and not known:
            # Nothing of it is left: each of them alone shows whose fault it was.
            chunk.again.update(t.index for t in culprits)
            self._transact(chunk.open(broken.before), chunk)
            for task in culprits:
                self._transact([task], chunk)
            return
        if landed:
            chunk.decided.update(t.index for t in broken.before)
        for task in culprits:
            task.end(Outcome(State.IN_DOUBT, ENDED.code, reason=ENDED.reason) if landed else ENDED)
            chunk.decided.add(task.index)
            self._log.error("transaction ended by a handler", request_id=task.envelope.id,
                            type=task.envelope.type)  # fmt: skip


def _is_taken_id(error: psycopg.Error) -> bool:
    """Somebody else wrote this id since the look-up, or took the place of its reference."""
    return (
        isinstance(error, psycopg.errors.UniqueViolation)
        and error.diag.constraint_name in ("requests_pkey", "requests_coalescing")
        and error.diag.table_name == "requests"
    )
