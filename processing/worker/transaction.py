"""One transaction of a chunk: look up, run what has to run, write, COMMIT, tell.

What goes wrong is raised; `bisection` decides what is done then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from feedback.contract.counts import Count, NotRun
from feedback.contract.record import is_read_again
from feedback.contract.states import DUPLICATE, READ_AGAIN, DeadLetterReason, State
from feedback.journal.coalescing import Arrival, Coalescing, Superseded, superseded_statuses
from feedback.journal.dead_letters import conflict_letter
from feedback.journal.done_rows import copied
from feedback.journal.rows import RequestRow, StoredRequest
from feedback.journal.writer import CLOSED, JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.handler import Handler
from processing.worker.bad_luck import HANDLER_WAIT, ROW_WAIT
from processing.worker.calls import DONE
from processing.worker.chunk_run import ChunkRun
from processing.worker.dedup import Dedup, called_elsewhere, made_by, sort_out
from processing.worker.effect_transaction import EffectTransaction
from processing.worker.outages import Outages
from processing.worker.plain import is_plain, plain_rows, plain_statuses
from processing.worker.records import (
    ResultLog,
    attempts_of,
    final_of,
    needs_row,
    row_of,
    status_of,
    stored_status,
    write_follow_ups,
)
from processing.worker.retry_decision import arrivals, conclude, follow
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.traced_runs import Settling
from processing.worker.transaction_ends import CommitUnclear, Others


class _Times(NamedTuple):
    """When a transaction came so far."""

    ran: datetime
    """Handlers had run; what a row that stood there says may be past by the time it is told."""
    written: datetime
    written_there: datetime
    """The same, by the database's clock."""


class Transaction:
    """Takes tasks of different ids through one transaction."""

    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        session: Session,
        outages: Outages,
        rows: JournalWriter,
        segments: EffectTransaction,
        patience: float,
        coalescing: Coalescing,
        results: ResultLog,
        publish: Callable[[list[StatusWrite]], None],
        settling: Settling,
    ) -> None:
        """`patience`: seconds in which what was run without `tx` outlasts an outage."""
        self._handlers = handlers
        self._session = session
        self._outages, self._patience = outages, patience
        self._rows = rows
        self._segments = segments
        self._coalescing = coalescing
        self._results = results
        self._publish = publish
        self._settling = settling

    def run(self, tasks: Sequence[Task], chunk: ChunkRun, apart: list[Task]) -> list[Task]:
        """One transaction; returns what is left for the next one.

        What was looked up and has its effects elsewhere is added to `apart`. Raises Broken,
        Overtaken, CommitUnclear, DatabaseAway and what psycopg raises.
        """
        session = self._session
        chunk.tries.begin()
        # Handlers that take no tx may wait for others: no transaction is kept open meanwhile.
        late = not any(t.handler is not None and t.handler.wants_tx for t in tasks)
        if not late:
            session.begin()
            if chunk.handlers_locked:
                session.wait_at_most(HANDLER_WAIT)
        cursor = session.cursor()
        fate = self._look_up(cursor, tasks, chunk)
        recalled = fate.without_start(chunk.keep)
        ran, more_recalled, left = self._segments.run(fate.fresh, chunk)
        chunk.clear()
        for task in ran:
            (fate.plain if is_plain(task) else fate.ended).append(task)
        try:
            if not (late and self._end_at_once(cursor, fate, chunk)):
                if late:
                    self._begin_late(anything=bool(ran))
                    cursor = session.cursor()
                self._end(cursor, fate, chunk)
        except CommitUnclear as unclear:
            unclear.beside = {t.index for t in (*recalled, *more_recalled, *left, *fate.apart)}
            raise
        chunk.give_back([*recalled, *more_recalled])
        apart += fate.apart
        return left

    def _end_at_once(self, cursor: psycopg.Cursor[Any], fate: Dedup, chunk: ChunkRun) -> bool:
        """Where nothing is to be written but rows of plain ends: one COPY, which commits itself.

        False where it is not so, and where the connection is lost before it has got anything: then
        nothing has landed, and a BEGIN can be tried until there is another one.
        """
        session = self._session
        more = fate.ended or fate.answered or fate.conflicts or self._results.wanted
        if more or not fate.plain or chunk.rows_locked or session.needs_begin:
            return False
        now = datetime.now(UTC)
        with self._settling(fate.plain, fate.ended), ExitStack() as copying:
            try:
                copy = copying.enter_context(self._rows.copying_done(cursor))
            except psycopg.Error:
                if session.lost:
                    return False
                raise
            copy.write(copied(plain_rows(fate.plain)))
            session.commit(copying.close)
        self._tell(fate, [], _Times(now, now, session.clock.now()), chunk)
        return True

    def _end(self, cursor: psycopg.Cursor[Any], fate: Dedup, chunk: ChunkRun) -> None:
        """Writes all that has ended in the open transaction, commits and tells."""
        session = self._session
        session.put_back()
        now = datetime.now(UTC)
        for task in fate.ended:
            if task.outcome is DONE:
                task.used = task.used_before + 1
            else:
                conclude(task, session.clock.now(), random.random)
        with self._settling(fate.plain, fate.ended):
            if chunk.rows_locked:
                session.wait_at_most(ROW_WAIT)
            writes = self._write(cursor, fate, now, chunk)
            if chunk.rows_locked:
                session.wait_at_most(None)  # COMMITs that notify stand in one line
            others = Others(*session.number(), writes, fate.ousted) if writes else None
            times = _Times(now, datetime.now(UTC), session.clock.now())
            try:
                session.commit()
            except CommitUnclear as unclear:
                unclear.others = others
                raise
        self._tell(fate, writes, times, chunk)

    def tell_others(self, others: Others, chunk: ChunkRun) -> None:
        """Of a COMMIT that got no answer, where it has landed: its own requests are looked up.

        Raises psycopg.Error.
        """
        if self._session.committed(others.number, others.life):
            self._publish(others.writes)
            _count_gone(others.gone, chunk)

    def _look_up(
        self, cursor: psycopg.Cursor[Any], tasks: Sequence[Task], chunk: ChunkRun
    ) -> Dedup:
        """What comes next of each; gives back what is called elsewhere and what is behind it."""
        found = self._rows.find(cursor, [t.envelope.id for t in tasks])
        # Nothing waits for what has no lane: its row is its answer.
        elsewhere = [
            t
            for t in tasks
            if found and called_elsewhere(t, found) and chunk.lane_of(t.record) is not None
        ]
        if elsewhere:
            chunk.leave_elsewhere(elsewhere)
            tasks = chunk.in_order(chunk.open(tasks))
        return sort_out(tasks, found, chunk.decided, chunk.reading)

    def _begin_late(self, *, anything: bool) -> None:
        """Nothing was open while handlers ran, if any did: what they returned is kept."""
        if anything:
            self._outages.outlast(self._session.begin, self._patience)
        else:
            self._outages.redo(self._session.begin)

    def _write(
        self, cursor: psycopg.Cursor[Any], fate: Dedup, now: datetime, chunk: ChunkRun
    ) -> list[StatusWrite]:
        """Journal rows, in the order that all chunks keep: locks, coalescing, COPY, updates.

        Returns statuses of requests that are not the chunk's, to be published after COMMIT.
        """
        rows, ended = self._rows, fate.ended
        others = [t for t in ended if t.outcome is not DONE]
        coming = arrivals(others) if others else []
        self._lock(cursor, coming, fate)
        if fate.answered:
            rows.add_resends(cursor, {t.envelope.id: t.record for t in _resends(fate)})
        writes = self._coalesce(cursor, coming, now, fate)
        fate.rows = [row_of(t, now) for t in ended]
        new: list[RequestRow] = []
        changed: list[tuple[RequestRow, StoredRequest]] = []
        for task, row in zip(ended, fate.rows, strict=True):
            if task.stored is None:
                if needs_row(task):
                    new.append(row)
            elif needs_row(task):
                changed.append((row, task.stored))
            else:
                # Its result is in its status alone: that goes before COMMIT, but not before it is
                # known that the row is still this claim's.
                rows.delete(cursor, row, task.stored)
                self._publish([status_of(task, row, now)])
        if fate.plain:
            rows.insert_done(cursor, plain_rows(fate.plain))
        if new:
            rows.insert(cursor, new)
        rows.update(cursor, changed)
        return writes + self._write_beside(cursor, fate, now, chunk)

    def _write_beside(
        self, cursor: psycopg.Cursor[Any], fate: Dedup, now: datetime, chunk: ChunkRun
    ) -> list[StatusWrite]:
        """What comes of these requests beside their rows; statuses of follow-ups."""
        rows, ended = self._rows, fate.ended
        writes: list[StatusWrite] = []
        if any(t.follow_ups for t in ended):
            writes = write_follow_ups(rows, cursor, ended, self._session.clock.now(), now, chunk)
        for task in fate.conflicts:
            e, known = task.envelope, task.handler is not None
            assert task.stored is not None  # noqa: S101  (its id is another's)
            letter = conflict_letter(e.id, e.type, task.stored, task.record, known=known)
            rows.add_letter(cursor, letter)
        # Without a row nobody is shown a timeline, and the next row of its id begins another one.
        failed = [t for t in ended if (t.outcome is not DONE or t.lost) and needs_row(t)]
        if attempts := [line for t in failed for line in attempts_of(t, now)]:
            rows.add_attempts(cursor, attempts)
        if self._results.wanted:
            self._results.add(cursor, [*fate.plain, *ended], _resends(fate))
        return writes

    def _lock(self, cursor: psycopg.Cursor[Any], coming: Sequence[Arrival], fate: Dedup) -> None:
        """Locks what is answered with what is finished and what may give way.

        Two chunks that each answer what the other finishes must not lock them in two orders.
        """
        own = [t.envelope.id for t in (*fate.answered, *fate.ended) if t.stored]
        if coming:
            self._coalescing.lock(cursor, coming, own)
        elif fate.answered:
            self._rows.lock(cursor, own)

    def _coalesce(
        self, cursor: psycopg.Cursor[Any], coming: Sequence[Arrival], now: datetime, fate: Dedup
    ) -> list[StatusWrite]:
        """Of what waits for one reference the newest stays; statuses of rows that gave way."""
        if not coming:
            return []
        verdict = self._coalescing.settle(cursor, coming, self._session.clock.now(), now)
        for task in fate.ended:
            follow(task, verdict)
        fate.ousted = [waiter.replaced_by(winner) for waiter, winner in verdict.ousted]
        self._results.add_ousted(cursor, fate.ousted)
        return superseded_statuses(fate.ousted, now)

    def _tell(
        self, fate: Dedup, writes: list[StatusWrite],
        times: _Times, chunk: ChunkRun,
    ) -> None:  # fmt: skip
        """After COMMIT: publish, count."""
        writes += plain_statuses(fate.plain)
        for task, row in zip(fate.ended, fate.rows, strict=True):
            final = row.state in CLOSED and needs_row(task)
            bump, now = _without_row(task), times.written_there
            writes.append(status_of(task, row, times.written, now=now, bump=bump, final=final))
        for task in fate.answered:
            writes += self._standing(task, times.ran)
            if task.stored is not None:
                code = READ_AGAIN if is_read_again(task.record) else DUPLICATE
                chunk.tally.counts[Count(task.envelope.type, State(task.stored.state), code)] += 1
        for task in fate.conflicts:
            # Its own status may have expired: whoever sent another payload sees what stands there.
            writes += self._standing(task, times.ran)
            reason = DeadLetterReason.CONFLICT
            chunk.tally.counts[Count(task.envelope.type, NotRun.DEAD_LETTER, reason)] += 1
        self._publish(writes)
        _count_gone(fate.ousted, chunk)
        for task in fate.ended:
            chunk.wait_until(final_of(task).due, times.written_there)
        chunk.settle_done(fate.plain)
        chunk.settle(fate.ended)
        for others in (fate.answered, fate.conflicts, fate.stale):
            chunk.settled.update(t.index for t in others)

    def _standing(self, task: Task, now: datetime) -> list[StatusWrite]:
        """The status of the row under its id, which may be of another type.

        A doubt is no news to who has sent it again, where its message is only read again.
        """
        stored = task.stored
        if stored is None:
            return []
        if stored.state == State.IN_DOUBT and made_by(task, stored):
            now = stored.at
        return [stored_status(task, stored, self._handlers.get(stored.type), now)]


def _count_gone(rows: Sequence[Superseded], chunk: ChunkRun) -> None:
    for gone in rows:
        chunk.tally.counts[Count(gone.type, gone.state, gone.code)] += 1


def _resends(fate: Dedup) -> list[Task]:
    """What is answered because it was sent again, and not only read again."""
    return [t for t in fate.answered if t.stored is None or not made_by(t, t.stored)]


def _without_row(task: Task) -> bool:
    """A failure of which no row says which run it was."""
    return task.stored is None and not needs_row(task) and final_of(task).state is State.FAILED
