"""Records that a worker runs together, and what has become of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum
from time import monotonic
from typing import Any, ClassVar, Final

from feedback.backend import Backend
from feedback.contract.record import Record
from processing.handlers.handler import Handler
from processing.handlers.request import Request
from processing.ipc.frames import Report, Suspect
from processing.worker.bad_luck import has_waited, is_late
from processing.worker.chunk_tally import ChunkTally
from processing.worker.gate import Gate
from processing.worker.lost_tries import LostTries
from processing.worker.task import Task

STARTS_FOR: Final = 1.0
"""Seconds after its first start in which a chunk starts requests. Those behind a slow one should
not wait for its end, nor it for theirs; where there is one worker nobody calls them back."""


class _Mark(IntEnum):
    """How far a request has got, as far as recalling is concerned."""

    UNSTARTED = 0
    STARTED = 1
    RECALLED = 2


_STARTED = int(_Mark.STARTED)  # an attribute of an enum's costs as much as the comparison


class ChunkRun:
    """Records that a worker runs together; with a suspect exactly one.

    Whether a request was started or recalled is decided under the gate's lock, so exactly one side
    gets it. All else belongs to the thread that runs the chunk.
    """

    seated: ClassVar[bool] = False
    """Its one request runs in a seat, beside others."""
    refused = False
    """The database refused what was to be asked or written about its suspect."""

    def __init__(
        self,
        number: int,
        token: str,
        records: list[Record],
        suspect: Suspect | None,
        gate: Gate,
    ) -> None:
        self.number = number
        self.token = token
        self.records = records
        self.suspect = suspect
        self.returned: list[int] = []
        """Indices that were not run, for no fault of theirs."""
        self.unclear: list[int] = []
        """Indices whose COMMIT may have landed, or whose end could not be written though their
        handler must not be entered again."""
        self.tally = ChunkTally()
        self.database_up = True
        self.due_in: float | None = None
        """Seconds until the first request that was written down to wait is due."""
        self.settled: set[int] = set()
        """Indices that need nothing more."""
        self.decided: set[int] = set()
        """Indices whose outcome stands, whatever their handler would do: it is only written."""
        self.excused: set[int] = set()
        """Indices whose failure is their own, though it looked like the database's."""
        self.claims_in_vain: Counter[int] = Counter()
        """Index -> how often it could not be claimed, for no fault of its own."""
        self.alone: list[int] = []
        """Those given back that others are to go without: somebody keeps them locked."""
        self.elsewhere: list[int] = []  # of `alone`, what whoever had it before may be at yet
        self.unended: list[Backend] | None = None
        """Dead workers' backends that did not end: its suspect was not looked up. None: unasked."""
        self.rows_locked = self.handlers_locked = False
        """Statements of the journal's, or a handler's, waited too long: the next ones hardly do."""
        self.tries = LostTries(monotonic)
        """Its transactions that others were in the way of."""
        self._starts_until = -math.inf
        """By time.monotonic(); as long as nothing was started it is over."""
        self._raced: float | None = None
        """When another transaction was in its way first, by time.monotonic()."""
        self.lane_of: Callable[[Record], Hashable] = _no_lane
        """What of a record may not be reordered; None where that is nothing."""
        self._left: set[Hashable] = set()
        """Lanes of requests that are unclear or were given back."""
        self._gate = gate
        self._reading: int | None = None
        """The index that is read."""
        self._marks = bytearray(len(records))  # guarded by the gate's lock

    # What may still start

    def read(self, index: int, timeout: float | None) -> None:
        """A record is about to be read, perhaps by code of the user's: it is to blame for that."""
        self._reading = index
        self._gate.show(self.number, index, timeout, monotonic())

    @contextmanager
    def reading(self, task: Task) -> Iterator[None]:
        """Meanwhile code of the user's reads what the journal has of a request: as `read`."""
        self.read(task.index, task.timeout)
        try:
            yield
        finally:
            self.clear()

    def start(self, index: int, timeout: float | None) -> bool:
        """A request is about to run; False when it is another's now and must be left alone.

        It was recalled, or it is too late to start it. May be called again for a request that was
        started before.
        """
        now = monotonic()
        with self._gate.lock:
            if self._marks[index] != _STARTED:
                if self._marks[index] == _Mark.RECALLED or self._is_late(now):
                    return False
                self._marks[index] = _STARTED
        self._gate.show(self.number, index, timeout, now)
        return True

    def start_batch(self, indices: Sequence[int], timeout: float | None) -> list[int]:
        """Requests are about to run together; returns those that were started or still may be."""
        now, marks = monotonic(), self._marks
        with self._gate.lock:
            mine = [index for index in indices if marks[index] != _Mark.RECALLED]
            if any(marks[index] != _STARTED for index in mine) and self._is_late(now):
                mine = [index for index in mine if marks[index] == _STARTED]
            for index in mine:
                marks[index] = _STARTED
        if mine:
            self._gate.show(self.number, mine[0] if len(mine) == 1 else None, timeout, now)
        return mine

    def _is_late(self, now: float) -> bool:
        """Whether the first start was too long ago for another; without one this is the first."""
        if now <= self._starts_until:
            return False
        first = self._starts_until == -math.inf
        if first:
            self._starts_until = now + STARTS_FOR
        return not first

    def wait_together(self, timeout: float | None) -> None:
        """What was started waits, for the database or the event loop: none is to blame for that."""
        self._gate.show(self.number, None, timeout, monotonic())

    def call_beside(self, task: Task, handler: Handler) -> bool:  # noqa: ARG002 - of a seat's
        """Begins a call that goes on by itself; False where it is to be waited for."""
        return False

    def ask(self, request: Request[Any], timeout: float) -> None:
        """A check is about to be asked about a request; `timeout`: seconds that it may take."""

    def keep(self, indices: Sequence[int]) -> list[int]:
        """Requests end without a start; returns those that were not recalled before."""
        with self._gate.lock:
            mine = [index for index in indices if self._marks[index] != _Mark.RECALLED]
            for index in mine:
                self._marks[index] = _Mark.STARTED
        return mine

    def clear(self) -> None:
        """No request runs, or is read, any more."""
        self._gate.clear()
        self._reading = None

    def recall(self) -> list[int]:
        """Marks what was not started as recalled; the caller holds the gate's lock."""
        stays = self._bound_to_reading()
        unstarted = [
            i for i, mark in enumerate(self._marks) if mark == _Mark.UNSTARTED and i not in stays
        ]
        for index in unstarted:
            self._marks[index] = _Mark.RECALLED
        return unstarted

    def _bound_to_reading(self) -> set[int]:
        """What is read, and what comes before it in its lane.

        Whoever takes over what is read would only hang in it as well. So it stays, and starts here:
        what it must not overtake stays, too.
        """
        last = self._reading  # once: the thread that reads goes on meanwhile
        if last is None or self._marks[last] != _Mark.UNSTARTED:
            return set()
        lane = self.lane_of(self.records[last])
        if lane is None:
            return {last}
        return {i for i in range(last + 1) if self.lane_of(self.records[i]) == lane}

    @property
    def waited(self) -> float:
        """Seconds since its call has ended, where that went on by itself."""
        return 0.0

    @property
    def under_way(self) -> bool:
        """What was begun goes on by itself: nothing is to be done before it has ended."""
        return False

    @property
    def recalled(self) -> int:
        """How many were recalled."""
        return self._marks.count(_Mark.RECALLED)

    @property
    def recalled_whole(self) -> bool:
        """Nothing is left to run."""
        return self.recalled == len(self._marks) > 0

    # What has become of it

    @property
    def taken(self) -> int:
        """How many were neither recalled nor given back; what was recalled may be given back."""
        recalled = {i for i, mark in enumerate(self._marks) if mark == _Mark.RECALLED}
        return len(self._marks) - len(recalled.union(self.returned))

    def open(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of `tasks` that need something more."""
        return [t for t in tasks if t.index not in self.settled]

    def in_order(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of `tasks` that may go on, in need of it or not; gives back the others.

        What follows one of its lane that is unclear, or was given back, must not come before it.
        What is decided has come before it, and is only to be written.
        """
        tasks = list(tasks)
        if not self._left:
            return tasks
        late = [
            t
            for t in self.open(tasks)
            if self.lane_of(t.record) in self._left and t.index not in self.decided
        ]
        self.give_back(late)
        gone = {t.index for t in late}
        return [t for t in tasks if t.index not in gone]

    def follows(self, task: Task, earlier: Iterable[Task]) -> bool:
        """Whether one of those that came before it is of its lane."""
        lane = self.lane_of(task.record)
        return lane is not None and any(self.lane_of(t.record) == lane for t in earlier)

    def locked_out(self, error: BaseException, *, handlers: bool = False) -> bool:
        """Another transaction was in the way; whether it has been for too long to try again.

        `handlers`: what met it was a statement of a handler's.
        """
        if self._raced is None:
            self._raced = monotonic()
        if not has_waited(error):
            return False
        late = is_late(self._raced)
        self.rows_locked |= not handlers
        self.handlers_locked |= handlers and late
        return late

    def finish(self) -> Report:
        """The report."""
        tally = self.tally
        durations = tally.durations
        return Report(
            chunk=self.number,
            returned=self.returned,
            alone=self.alone,
            unclear=self.unclear,
            times=tally.times,
            counts=tally.plain_counts(),
            database_up=self.database_up,
            due_in=self.due_in,
            durations=None if durations is None else durations.counts,
            held_up=self.tries.charged_to(self.alone) if self.alone else None,
            unended=self.unended,
            refused=self.refused,
            elsewhere=self.elsewhere or None,
        )

    def settle(self, tasks: Iterable[Task]) -> None:
        """These have ended."""
        tasks = list(tasks)
        self.tally.ended(tasks)
        self.settled.update([task.index for task in tasks])

    def settle_done(self, tasks: Sequence[Task]) -> None:
        """These are done."""
        self.tally.done(tasks)
        self.settled.update([task.index for task in tasks])

    def wait_until(self, due: datetime | None, now: datetime) -> None:
        """A request was written down to wait until then."""
        if due is not None:
            seconds, so_far = max(0.0, (due - now).total_seconds()), self.due_in
            self.due_in = seconds if so_far is None else min(seconds, so_far)

    def give_back(self, tasks: Iterable[Task], *, alone: bool = False) -> None:
        """These were not run, for no fault of theirs; `alone`: they would hold up others again.

        Of what was run all the same, and must not be again, nobody can say what becomes.
        """
        tasks = list(tasks)
        entered = [t for t in tasks if t.entered_for_good]
        if entered:
            self.leave_unclear(entered)
            tasks = [t for t in tasks if not t.entered_for_good]
        self.returned += self._leave(tasks)
        if alone:
            self.alone += [t.index for t in (*entered, *tasks)]

    def leave_elsewhere(self, tasks: Sequence[Task]) -> None:
        """Whoever had these before may be at them yet: they are tried again after a pause."""
        self.give_back(tasks, alone=True)
        self.elsewhere += [t.index for t in tasks]

    def leave_unclear(self, tasks: Iterable[Task]) -> None:
        """Unknown outcome: nothing is said of these before the journal has spoken."""
        self.unclear += self._leave(tasks)

    def _leave(self, tasks: Iterable[Task]) -> list[int]:
        tasks = list(tasks)
        lanes = (self.lane_of(t.record) for t in tasks)
        self._left.update(lane for lane in lanes if lane is not None)
        indices = [t.index for t in tasks]
        self.settled.update(indices)
        return indices


def _no_lane(_record: Record) -> None:
    """Nothing is in order."""
