"""Takes requests to their end in one transaction after the other, in as few as go well.

What was overtaken by another transaction is redone from the look-up, in halves where locks were in
the way; what cannot be committed together is halved down to the one request at fault, which then
ends with that error, or tried one by one where each has failed with it. So is whatever nobody
thought of: it is the end of one request, never of its worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg

from feedback.contract.states import State
from feedback.journal.database_errors import Overtaken, is_gone, is_lock_race, is_race, is_unfit
from feedback.journal.halving import LOSSES, LOSSES_TOGETHER
from feedback.status.status import StatusWrite
from processing.handlers.outcomes import Outcome, describe, safe_text
from processing.logs import BoundLogger
from processing.worker.bad_luck import (
    REDO,
    ConnectionLostEachTime,
    failed_by,
    held_up,
    pause_after,
)
from processing.worker.chunk_run import ChunkRun
from processing.worker.common_failure import CommonFailure
from processing.worker.landed_ends import LandedEnds
from processing.worker.outages import DatabaseAway, Outages
from processing.worker.records import failure_without_row, stored_status
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.transaction import Transaction
from processing.worker.transaction_ends import DOUBT, Broken, CommitUnclear, Struck, undone_end


@dataclass(slots=True)
class _Luck:
    """How often requests may still be tried together."""

    tries: int = REDO
    losses: int = 0
    """Connections lost under them."""
    refused: bool = False
    """The journal has refused them once."""


class Bisection:
    """Runs transactions until every task has ended, or was looked up and runs elsewhere."""

    def __init__(
        self,
        *,
        session: Session,
        transaction: Transaction,
        outages: Outages,
        schema: str,
        patience: float,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
    ) -> None:
        """`patience`: seconds in which what a handler has committed outlasts an outage."""
        self._session = session
        self._landed = LandedEnds(
            session,
            transaction,
            outages,
            schema=schema,
            patience=patience,
            publish=publish,
            log=log,
        )
        self._transaction = transaction
        self._outages = outages
        self._patience = patience
        self._schema = schema
        self._publish = publish
        self._log = log
        self._common = CommonFailure()

    def run(self, tasks: Sequence[Task], chunk: ChunkRun, apart: list[Task]) -> None:
        """Takes tasks of different ids to their end.

        Adds to `apart` those that were looked up and have their effects elsewhere. Raises
        DatabaseAway, and nothing else.
        """
        luck, failed = _Luck(), list[BaseException]()
        while tasks := chunk.in_order(tasks):
            try:
                left = self._transaction.run(tasks, chunk, apart)
                self._outages.committed()
                luck.tries = REDO
                if any(t.index not in chunk.decided for t in tasks):
                    self._common.went_well()
                tasks = left
            except DatabaseAway:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is one request's end
                failed.append(error)
            if failed:  # handled out here: it is no context of what others raise later
                tasks = self._after(failed.pop(), tasks, luck, chunk, apart)
            tasks = _left(tasks, chunk, apart)

    def fail(self, task: Task, error: BaseException, chunk: ChunkRun) -> None:
        """It ends with `error`. Raises DatabaseAway."""
        self._fail([task], error, chunk, [])

    def _fail(
        self, tasks: Sequence[Task], error: BaseException, chunk: ChunkRun, apart: list[Task]
    ) -> None:
        tasks = chunk.open(tasks)
        if len(tasks) > 1:
            self._halves(tasks, error, chunk, apart)
        elif tasks and tasks[0].index not in chunk.decided:
            self._common.failed_alone(error)
            self._decide(tasks[0], failed_by(error), chunk, apart)
        elif tasks:
            self._leave_unwritten(tasks[0], error, chunk)

    def _halves(
        self, tasks: Sequence[Task], error: BaseException, chunk: ChunkRun, apart: list[Task]
    ) -> None:
        """Each part has ended before the next one begins, so keys keep their order."""
        done = 0
        for end in (len(tasks) // 2, len(tasks)):
            while done < end - 1 and self._common.explains(error):
                self.run(tasks[done : done + 1], chunk, apart)
                done += 1
            self.run(tasks[done:end], chunk, apart)
            done = end

    def _decide(self, task: Task, outcome: Outcome, chunk: ChunkRun, apart: list[Task]) -> None:
        """It ends so, whatever its handler would do: that need only be written."""
        task.end(outcome)
        chunk.decided.add(task.index)
        self.run([task], chunk, apart)

    def _leave_unwritten(self, task: Task, error: BaseException, chunk: ChunkRun) -> None:
        """Not even its failure can be journaled, and only a row makes more of it than `failed`.

        Where its row is the answer, and only that it was sent again cannot be noted, it is that.
        Raises DatabaseAway.
        """
        self._outages.blame_database(error)
        self._log.error(
            "a failure could not be journaled",
            request_id=task.envelope.id,
            type=task.envelope.type,
            error=describe(error),
        )
        if task.claim is None:
            now, stored = datetime.now(UTC), task.stored
            if stored is None or stored.state == State.FAILED:
                told = failure_without_row(task, now)
            else:
                mine = stored.type == task.envelope.type
                told = stored_status(task, stored, task.handler if mine else None, now)
            self._publish([told])
        chunk.settle([task])

    def _after(
        self, raised: BaseException, tasks: list[Task], luck: _Luck, chunk: ChunkRun,
        apart: list[Task],
    ) -> list[Task]:  # fmt: skip
        """What to go on with after a transaction that was not committed."""
        chunk.clear()  # from here on it takes what the database takes
        match raised:
            case Broken():
                lost = self._after_broken(raised, chunk, apart)
                return tasks if lost is None else self._after_loss(lost, tasks, luck, chunk, apart)
            case CommitUnclear():
                committed = [t for t in chunk.open(tasks) if t.index not in raised.beside]
                chunk.leave_unclear(committed)
                self._outages.survive(raised)
                if raised.others is not None:
                    with suppress(psycopg.Error):  # the next statement finds out the same
                        self._transaction.tell_others(raised.others, chunk)
                return tasks
            case Struck() | Overtaken() | psycopg.Error():
                return self._after_error(raised, tasks, luck, chunk, apart)
            case _:
                # Of user code, or our own.
                self._log.error("unexpected", error=describe(raised), exc_info=raised)
                self._session.drop()  # nobody knows what it is in the middle of
                self._outages.connect()
                self._fail(tasks, raised, chunk, apart)
        return []

    def _after_error(
        self, raised: Struck | Overtaken | psycopg.Error, tasks: list[Task], luck: _Luck,
        chunk: ChunkRun, apart: list[Task],
    ) -> list[Task]:  # fmt: skip
        """A statement failed: one of the journal's own, or one that handlers were struck by."""
        own = not isinstance(raised, Struck)
        error = raised.error if isinstance(raised, Struck) else raised
        if isinstance(error, psycopg.Error):
            if self._outages.survive(error, journals=own):
                return self._after_loss(error, tasks, luck, chunk, apart)
            if own and is_unfit(error) and not luck.refused:
                return self._after_refusal(error, tasks, luck, chunk)
        self._session.rollback()
        if is_race(error, self._schema):
            return self._after_race(raised, tasks, luck, chunk, apart)
        if isinstance(raised, Struck):
            # The database does work: it was what they asked of it.
            chunk.excused.update(t.index for t in raised.tasks)
            return tasks
        self._fail(tasks, error, chunk, apart)
        return []

    def _after_loss(
        self, error: psycopg.Error, tasks: list[Task], luck: _Luck, chunk: ChunkRun,
        apart: list[Task],
    ) -> list[Task]:  # fmt: skip
        """The connection broke before anything was committed, and there is a new one."""
        luck.losses += 1
        if luck.losses < (LOSSES if len(tasks) == 1 else LOSSES_TOGETHER):
            return tasks
        # The database works, but for these.
        self._fail(tasks, ConnectionLostEachTime(luck.losses, error), chunk, apart)
        return []

    def _after_refusal(
        self, error: psycopg.Error, tasks: list[Task], luck: _Luck, chunk: ChunkRun
    ) -> list[Task]:
        """The journal's own statement was refused, though a probe finds nothing that is missing.

        A right may have been given since, and a handler may have taken another role for the rest of
        its transaction: they are tried once more, then halved. Raises DatabaseAway where something
        of the journal's is gone, of which no handler can have made that.
        """
        if is_gone(error):
            self._outages.blame_database(error)
        luck.refused = True
        chunk.clear()
        return tasks

    def _after_race(
        self, raised: BaseException, tasks: list[Task], luck: _Luck, chunk: ChunkRun,
        apart: list[Task],
    ) -> list[Task]:  # fmt: skip
        """Another transaction was in the way: what to take from the look-up again."""
        handlers = isinstance(raised, Struck)
        error, met = (raised.error, raised.tasks) if isinstance(raised, Struck) else (raised, tasks)
        luck.tries -= 1
        chunk.tries.lost(t.index for t in chunk.open(met))
        if chunk.locked_out(error, handlers=handlers) or not luck.tries:
            self._give_way(error, tasks, chunk, apart)
            return []
        self._log.debug("redone from the look-up", why=safe_text(error))
        if is_lock_race(error) and len(tasks) > 1:
            # The same chunk would meet the same other one again: fewer locks are held at once.
            middle = len(tasks) // 2
            self.run(chunk.open(tasks[:middle]), chunk, apart)
            return chunk.open(tasks[middle:])
        time.sleep(pause_after(REDO - luck.tries))
        return tasks

    def _give_way(
        self, error: BaseException, tasks: Sequence[Task], chunk: ChunkRun, apart: list[Task]
    ) -> None:
        """Races are lost all the time: alone each may win; one that does not waits a while."""
        tasks = chunk.open(tasks)
        if len(tasks) > 1:
            self._halves(tasks, error, chunk, apart)
        elif tasks and (_has_end(tasks[0], chunk) or isinstance(error, Overtaken)):
            chunk.give_back(tasks, alone=True)
        elif tasks:
            self._decide(tasks[0], held_up(error, tasks[0].run), chunk, apart)

    def _after_broken(
        self, broken: Broken, chunk: ChunkRun, apart: list[Task]
    ) -> psycopg.Error | None:
        """A handler ended the transaction, or its connection broke under it.

        Returns what broke it where that undid all and is nobody's fault.
        """
        # What a handler did behind a ROLLBACK may have been committed, statement by statement.
        alone = self._session.idle
        landed = self._has_landed(broken)
        culprits = broken.culprits
        if landed is False and broken.lost is not None:
            return broken.lost
        if landed is None and broken.lost is not None:
            chunk.leave_unclear(chunk.open([*broken.before, *culprits]))
            return None
        doubtful = alone or landed is not False
        if not doubtful and not broken.known:
            # Nothing of it is left: each of them alone shows whose fault it was.
            self.run(chunk.open(broken.before), chunk, apart)
            for task in culprits:
                self.run([task], chunk, apart)
            return None
        for task in culprits:
            end = DOUBT if doubtful else undone_end(task.outcome, broken.left_open)
            task.end(end)
            chunk.decided.add(task.index)
            self._log.error("transaction ended by a handler", request_id=task.envelope.id,
                            type=task.envelope.type, error=end.error)  # fmt: skip
        if doubtful:
            before = [] if landed is False else broken.before  # else it is undone, and run again
            self._landed.write(before, culprits, chunk, certain=landed is True)
        return None

    def _has_landed(self, broken: Broken) -> bool | None:
        """Whether the transaction was committed; None where nobody can say.

        Raises DatabaseAway where the connection broke: then it was not the handler.
        """
        session, outages = self._session, self._outages
        backend, life = session.backend, session.life

        def ask() -> bool | None:
            session.end_former(backend)  # it may still be at work on what the handler sent
            return broken.xid != 0 and session.committed(broken.xid, life)

        try:
            if broken.lost is None:
                session.rollback()
                return outages.outlast(ask, self._patience)
            outages.survive(broken.lost)
            session.rollback()
            outages.connect()
            return outages.redo(ask)
        except (DatabaseAway, psycopg.Error) as error:
            if isinstance(error, DatabaseAway) and broken.lost is not None:
                raise
            self._log.error("nobody can say what was committed", error=describe(error))
            return None


def _has_end(task: Task, chunk: ChunkRun) -> bool:
    """Whether it need only be written: also what was not to run now, as it is delayed or late."""
    return task.index in chunk.decided or (task.outcome is not None and task.started is None)


def _left(tasks: Sequence[Task], chunk: ChunkRun, apart: Sequence[Task]) -> list[Task]:
    """Those that have not ended and were not looked up to run elsewhere."""
    looked_up = {t.index for t in apart}
    return [t for t in chunk.open(tasks) if t.index not in looked_up]
