"""Runs handlers inside the chunk's transaction, in segments with a savepoint each.

A savepoint per request would cost a third of the throughput, none at all would let one exception
undo the whole chunk. So requests run in segments; where one fails the segment is undone and run
again with a savepoint for each request. What is alone in one, as types are that failed lately, is
entered once. The transaction ends after a segment that failed, and after so many alone, to bound
its subtransactions. Types that set savepoints themselves have one for each request, where none that
another request left can be met.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import psycopg

from feedback.journal.database_errors import Outgrown, is_lock_race, is_stale_plan, outage_of
from processing.handlers.outcomes import outcome_of
from processing.worker.calls import DONE, Calls
from processing.worker.chunk_run import ChunkRun
from processing.worker.kept_types import has_outgrown
from processing.worker.segment_sizes import SegmentSizes
from processing.worker.session import Session
from processing.worker.task import Task, share_out
from processing.worker.transaction_ends import Broken, Struck, TransactionEnded

ALONE_AT_MOST: Final = 50
"""Requests with a savepoint each in one transaction: PostgreSQL keeps 64 savepoints at hand."""


class EffectTransaction:
    """Runs tasks of handlers in one transaction after the other."""

    def __init__(self, session: Session, calls: Calls, size: int) -> None:
        self._session = session
        self._calls = calls
        self._sizes = SegmentSizes(size)

    def run(
        self, tasks: Sequence[Task], chunk: ChunkRun
    ) -> tuple[list[Task], list[Task], list[Task]]:
        """Runs tasks until all ran or a segment failed: (ran, recalled, left for later).

        Raises Broken where a handler ended the transaction, Struck where something else is why it
        failed, and psycopg.Error where the connection was lost otherwise.
        """
        ran: list[Task] = []
        recalled: list[Task] = []
        position = alone = 0
        while position < len(tasks):
            segment = self._sizes.next_of(tasks, position)
            position += len(segment)
            alone += len(segment) == 1 and _takes_tx(segment)
            try:
                more = position < len(tasks)
                failed = self._run_segment(segment, chunk, ran, recalled, more=more)
            except Broken as broken:
                broken.before = [*ran, *broken.before]
                self._sizes.failed(broken.culprits)
                raise
            if failed or alone == ALONE_AT_MOST:
                return ran, recalled, list(tasks[position:])
        return ran, recalled, []

    def _run_segment(
        self, segment: Sequence[Task], chunk: ChunkRun, ran: list[Task], recalled: list[Task],
        *, more: bool,
    ) -> bool:  # fmt: skip
        if segment[0].handler is not None and segment[0].handler.batch:
            self._run_batch(segment, chunk, ran, recalled)
            return False
        if not _takes_tx(segment):
            for task in segment:
                (ran if self._enter(task, chunk) else recalled).append(task)
            chunk.clear()
            return False
        if len(segment) == 1:
            self._run_single(segment[0], chunk, ran, recalled, more=more)
            return False
        xid = self._session.savepoint()
        done, gone = list[Task](), list[Task]()
        if self._try_together(segment, chunk, done, gone, xid, more=more):
            ran += done
            recalled += gone
            self._sizes.went_well(segment[0])
            return False
        recalled += gone
        self._sizes.failed(segment)
        for task in segment:
            if task not in gone:
                (ran if self._run_alone(task, chunk) else recalled).append(task)
        chunk.clear()
        return True

    def _try_together(
        self, segment: Sequence[Task], chunk: ChunkRun, done: list[Task], gone: list[Task],
        xid: int, *, more: bool,
    ) -> bool:  # fmt: skip
        """Runs a segment under one savepoint; False where it was undone because one failed."""
        next_in = xid if more else None
        if all(t.handler and t.handler.pipeline for t in segment):
            return self._run_pipelined(segment, chunk, done, gone, xid, next_in)
        if not self._run_each(segment, chunk, done, gone, xid):
            return False
        chunk.wait_together(max((t.timeout for t in done), default=None))
        if self._release(done, xid, chunk, next_in=next_in) is None:
            return True
        self._back(done, xid)  # a deferred constraint: find out whose
        return False

    def _run_each(
        self, segment: Sequence[Task], chunk: ChunkRun, done: list[Task], gone: list[Task], xid: int
    ) -> bool:
        """Runs a segment, looking at the transaction after each; False where one failed."""
        for task in segment:
            if not self._enter(task, chunk):
                gone.append(task)
                continue
            if task.started is None or (task.outcome is DONE and self._session.untouched):
                done.append(task)
                continue
            self._check([task], xid, one_call=True, before=done)
            self._blame([task], chunk)
            meddled = self._meddled(task)
            if task.outcome is not DONE or meddled or not self._session.in_transaction:
                chunk.clear()
                self._back([*done, task], xid)
                return False
            done.append(task)
        return True

    def _run_pipelined(
        self, segment: Sequence[Task], chunk: ChunkRun, done: list[Task], gone: list[Task],
        xid: int, next_in: int | None,
    ) -> bool:  # fmt: skip
        """As _run_each with the release, but all is sent before the first answer is waited for."""
        failures = self._session.failures
        failed = self._send_together(segment, chunk, done, gone, next_in)
        chunk.clear()
        if done:
            self._check(done, xid, one_call=len(done) == 1)
            if failed is not None:
                failures.note(failed)
                self._blame(done, chunk)
        elif failed is not None:
            raise failed  # all were recalled: it is about none of them
        well = failed is None and all(t.outcome is DONE or t.started is None for t in done)
        apart = self._sizes.apart
        meddled = apart and not apart.isdisjoint(t.envelope.type for t in done)
        if well and not meddled and self._session.in_transaction:
            return True
        self._back(done, xid)
        return False

    def _meddled(self, task: Task) -> bool:
        """Whether a handler may have gone back to a savepoint of another request, or left one."""
        if self._session.failures.savepoints:
            self._sizes.apart.add(task.envelope.type)
            return True
        return False

    def _send_together(
        self, segment: Sequence[Task], chunk: ChunkRun, done: list[Task], gone: list[Task],
        next_in: int | None,
    ) -> psycopg.Error | None:  # fmt: skip
        """Sends what a segment says, then its release, and waits; the first error of all that."""
        session, timeout, sent = self._session, 0.0, time.perf_counter()
        failed: psycopg.Error | None = None
        try:
            with session.pipeline() as pipeline:
                for task in segment:
                    if not self._enter(task, chunk):
                        gone.append(task)
                        continue
                    done.append(task)
                    timeout = max(timeout, task.timeout)
                    if task.started is None:
                        continue
                    failed = failed or session.failures.last
                    if task.outcome is not DONE or self._meddled(task):
                        break
                else:
                    if failed is None:
                        session.release(next_in=next_in, pipeline=pipeline)
                chunk.wait_together(timeout)
                sent = time.perf_counter()
        except psycopg.Error as error:
            failed = failed or error
        share_out(time.perf_counter() - sent, done)
        return failed

    def _run_single(
        self, task: Task, chunk: ChunkRun, ran: list[Task], recalled: list[Task], *, more: bool
    ) -> None:
        """Runs a segment of one: whose fault it is that it fails need not be found out."""
        (ran if (entered := self._run_alone(task, chunk, more=more)) else recalled).append(task)
        self._meddled(task)
        if task.outcome is DONE:
            self._sizes.went_well(task)
        elif entered and task.started is not None:
            self._sizes.failed([task])
        chunk.clear()

    def _run_alone(self, task: Task, chunk: ChunkRun, *, more: bool = False) -> bool:
        """Runs one request under a savepoint of its own; False when it was recalled."""
        xid = self._session.savepoint()
        entered = self._enter(task, chunk)
        if not entered or task.started is None:
            self._session.back()
            return entered
        self._check([task], xid, one_call=True)
        self._blame([task], chunk)
        if task.outcome is DONE and self._session.in_transaction:
            error = self._release([task], xid, chunk, next_in=xid if more else None)
            if error is None:
                return True
            task.end(outcome_of(error))
        elif task.outcome is DONE:
            swallowed = "the handler went on after a database error and left the transaction broken"
            task.end(outcome_of(RuntimeError(swallowed)))
        self._back([task], xid)
        return True

    def _release(
        self, tasks: Sequence[Task], xid: int, chunk: ChunkRun, *, one_call: bool = False,
        next_in: int | None = None,
    ) -> psycopg.Error | None:  # fmt: skip
        """Ends their segment; the error of their deferred constraints, whose triggers may hang."""
        begun = time.perf_counter()
        try:
            self._session.release(next_in=next_in)
        except TransactionEnded:
            raise Broken(tasks, xid, known=one_call or len(tasks) == 1) from None
        except psycopg.Error as error:
            self._blame_commit(tasks, error, chunk)
            return error
        finally:
            share_out(time.perf_counter() - begun, tasks)
        return None

    def _back(self, tasks: Sequence[Task], xid: int, *, known: bool = False) -> None:
        """Undoes what these did since their savepoint."""
        try:
            self._session.back()
        except TransactionEnded:
            raise Broken(tasks, xid, known=known or len(tasks) == 1) from None

    def _check(
        self, tasks: Sequence[Task], xid: int, *, one_call: bool, before: Sequence[Task] = ()
    ) -> None:
        """Raises Broken where the transaction is gone after handlers ran, or one for them all."""
        if self._session.lost_by_handler():
            lost = self._session.broken_by
            raise Broken(
                tasks, xid, known=one_call and lost is None, lost=lost, before=before,
                left_open=lost is None and self._session.left_open,
            )  # fmt: skip
        if self._session.ended(xid):
            raise Broken(tasks, xid, known=one_call, before=before)

    def _blame(self, tasks: Sequence[Task], chunk: ChunkRun) -> None:
        """Raises Struck where the database is why handlers failed.

        Reject and Retry after a lock that could not be had at once are their own word.
        """
        error, healthy = self._session.failures.last, self._session.in_transaction
        if error is None or (healthy and any(t.outcome is DONE for t in tasks)):
            return
        if not _not_their_fault(error, tasks, chunk):
            # Asking may undo what ran. What has failed is undone by the caller anyway.
            done = any(t.outcome is DONE for t in tasks)
            if done or not has_outgrown(self._session.failures):
                return
            error = Outgrown(str(error))
        meant = any(t.outcome is not None and t.outcome.meant for t in tasks)
        if not meant or not (healthy or isinstance(error, psycopg.errors.LockNotAvailable)):
            raise Struck(tasks, error) from error

    def _blame_commit(self, tasks: Sequence[Task], error: psycopg.Error, chunk: ChunkRun) -> None:
        """As _blame, of an error at the end of a segment; raises a lost connection's as it is."""
        if self._session.lost:
            raise error
        if tasks and _not_their_fault(error, tasks, chunk):  # none where all were recalled
            raise Struck(tasks, error) from error

    def _enter(self, task: Task, chunk: ChunkRun) -> bool:
        """Runs a request; False when it was recalled. One that has expired ends without a start."""
        handler = task.handler
        if handler is None or not chunk.start(task.index, task.timeout):
            return False
        if not task.end_expired():
            self._calls.one(task, handler)
        return True

    def _run_batch(
        self, segment: Sequence[Task], chunk: ChunkRun, ran: list[Task], recalled: list[Task]
    ) -> None:
        handler = segment[0].handler
        if handler is None:
            raise AssertionError("a batch without a handler")
        timeout = min(task.timeout for task in segment)
        mine = set(chunk.start_batch([t.index for t in segment], timeout))
        tasks = [t for t in segment if t.index in mine]
        recalled += [t for t in segment if t.index not in mine]
        if not tasks:
            return
        over = [t for t in tasks if t.end_expired()]
        ran += over
        tasks = [t for t in tasks if t not in over]
        if not tasks:
            return
        xid = self._session.savepoint() if handler.wants_tx else 0
        self._calls.batch(tasks, handler)
        if handler.wants_tx:
            self._settle_batch(tasks, xid, chunk)
        chunk.clear()
        ran += tasks

    def _settle_batch(self, tasks: Sequence[Task], xid: int, chunk: ChunkRun) -> None:
        session = self._session
        self._check(tasks, xid, one_call=True)
        self._blame(tasks, chunk)
        if session.in_transaction and any(t.outcome is DONE for t in tasks):
            error = self._release(tasks, xid, chunk, one_call=True)
            if error is None:
                return
            for task in tasks:
                task.end(outcome_of(error))
        elif any(t.outcome is DONE for t in tasks):
            for task in tasks:
                task.end(outcome_of(RuntimeError("the batch left the transaction broken")))
        self._back(tasks, xid, known=True)


def _takes_tx(segment: Sequence[Task]) -> bool:
    return any(t.handler is not None and t.handler.wants_tx for t in segment)


def _not_their_fault(error: psycopg.Error, tasks: Sequence[Task], chunk: ChunkRun) -> bool:
    """Whether it says that the database, or another transaction, was in the way.

    The database works for all of them that are excused: it is what they ask of it.
    """
    excused = all(t.index in chunk.excused for t in tasks)
    away = not excused and outage_of(error, connected=True) is not None
    return away or is_lock_race(error) or is_stale_plan(error)
