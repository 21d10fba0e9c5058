"""Requests with effect="none": pure computation, outside of any transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from feedback.contract.states import State
from feedback.status.status import StatusWrite
from processing.handlers.outcomes import outcome_of
from processing.ipc.frames import Suspect
from processing.worker.chunk_run import ChunkRun
from processing.worker.crash_recovery import end_of_suspect
from processing.worker.dedup import kinds_in_order, not_again
from processing.worker.effect_transaction import EffectTransaction
from processing.worker.plain import is_plain, plain_statuses
from processing.worker.records import ROWS_OF_PURE, final_of, row_of, status_of
from processing.worker.retry_decision import conclude
from processing.worker.task import Task


class EffectNone:
    """Runs them; their results are in Redis only. A row is for what waits, is dead or cancelled."""

    def __init__(
        self, segments: EffectTransaction, publish: Callable[[list[StatusWrite]], None]
    ) -> None:
        self._segments = segments
        self._publish = publish

    def run_fresh(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Runs those of `tasks` that no row can know of; returns what needs the journal.

        What follows others of its lane, or comes before them, takes its turn among them.
        """
        free, others = [], set()
        for task in tasks:
            if task.outcome is None and _without_row(task) and not_again(task) is None:
                free.append(task)
            elif (lane := chunk.lane_of(task.record)) is not None:
                others.add(lane)
        mine = [t for t in free if chunk.lane_of(t.record) not in others]
        if mine and chunk.suspect is not None:
            mine = self._end_suspects(chunk.suspect, mine, chunk)
        if mine:
            self.run(mine, chunk)
        return [] if chunk.under_way else chunk.open(tasks)

    def _end_suspects(self, suspect: Suspect, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Ends what is not to be entered again; returns the others."""
        for task in tasks:
            if (outcome := end_of_suspect(suspect, task)) is not None:
                task.end(outcome)
        self._tell([t for t in tasks if t.outcome is not None], chunk)
        return [t for t in tasks if t.outcome is None]

    def run(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Runs tasks; returns those whose end has to be written to the journal."""
        for group in kinds_in_order(tasks, chunk.lane_of):
            if mine := chunk.in_order(group):  # of each: the one before may have been called back
                self._run(mine, chunk)
        if chunk.under_way:
            return []
        ran = chunk.open(tasks)
        self._tell(ran, chunk)
        return chunk.open(ran)

    def end_call(self, task: Task, chunk: ChunkRun) -> list[Task]:
        """A call that went on by itself has ended; returns it where that has to be written."""
        self._tell([task], chunk)
        return chunk.open([task])

    def _run(self, group: Sequence[Task], chunk: ChunkRun) -> None:
        if chunk.seated and self._begun(group[0], chunk):
            return
        try:
            _, recalled, _ = self._segments.run(group, chunk)
        except BaseException as error:  # noqa: BLE001 - of user code: it ends these, not the worker
            recalled = []
            for task in group:
                if task.outcome is None:
                    task.end(outcome_of(error))
        chunk.give_back(recalled)

    @staticmethod
    def _begun(task: Task, chunk: ChunkRun) -> bool:
        """Whether its call goes on by itself, or is not to begin."""
        handler = task.handler
        if handler is None or not handler.asynchronous:
            return False
        if not chunk.start(task.index, None):
            chunk.give_back([task])
            return True
        if task.end_expired():
            chunk.clear()
            return True
        return chunk.call_beside(task, handler)

    def _tell(self, ran: Sequence[Task], chunk: ChunkRun) -> None:
        plain: list[Task] = []
        others: list[Task] = []
        for task in ran:
            (plain if is_plain(task) else others).append(task)
        now = datetime.now(UTC)  # what waits gets a row, and with that another time to be due at
        for task in others:
            conclude(task, now, random.random)
        kept = [t for t in others if t.stored or final_of(t).state in ROWS_OF_PURE]
        chunk.decided.update(t.index for t in kept)
        gone = [t for t in others if t.index not in chunk.decided]
        # No row says which run it is: the store takes the one after the standing status's.
        self._publish(
            [
                *plain_statuses([t for t in plain if _is_told(t)], rows=False),
                *(
                    status_of(t, row_of(t, now), now, bump=final_of(t).state is State.FAILED)
                    for t in gone
                    if _is_told(t)
                ),
            ]
        )
        chunk.settle_done(plain)
        chunk.settle(gone)


def _without_row(task: Task) -> bool:
    """Its copies need not be looked up: nothing of its type waits for another run."""
    handler = task.handler
    return (
        handler is not None
        and handler.effect == "none"
        and task.claim is None
        and handler.retries.attempts == 1
        and handler.not_before is None
    )


def _is_told(task: Task) -> bool:
    """Whether its end gets a status: not the success of a type that nobody asks about."""
    done = final_of(task).state is State.DONE
    return not done or task.handler is None or task.handler.done_status
