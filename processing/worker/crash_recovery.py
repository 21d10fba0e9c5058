"""Finds out what a dead worker left of a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from feedback.backend import Backend
from feedback.contract.counts import Count
from feedback.contract.lost_starts import END_UNKNOWN, lost_reason
from feedback.contract.record import Record
from feedback.contract.states import (
    CANCELLED,
    MOST_CRASHES,
    SHUTDOWN,
    TIMEOUT,
    WORKER_DIED,
    State,
)
from feedback.contract.times import moment
from feedback.journal.backends import END_WAIT
from feedback.journal.halving import LOSSES
from feedback.journal.rows import StoredRequest
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.decoder import Skip
from processing.handlers.outcomes import Outcome
from processing.ipc.frames import ASK, Suspect
from processing.worker.bad_luck import ConnectionLostEachTime, failed_by
from processing.worker.checks import TOO_LATE, Checks
from processing.worker.chunk_run import ChunkRun
from processing.worker.dedup import has_expired
from processing.worker.interruption import lost
from processing.worker.records import stored_status
from processing.worker.session import Session
from processing.worker.task import LostStart, Task
from processing.worker.transaction_ends import CommitUnclear

_NOTHING = "its check says that the call did not happen"
_LOST = "no COMMIT of it was answered, and none has landed"
_KILLED = frozenset({TIMEOUT, SHUTDOWN, CANCELLED})
"""Verdicts on a worker that was killed on purpose: no crash."""


def note_crashes(task: Task, suspect: Suspect) -> None:
    """Notes on a task what its earlier starts came to; with a verdict the last one is this one."""
    task.lost = max(0, suspect.crashes - 1) if suspect.verdict else suspect.crashes
    killed = suspect.verdict in _KILLED and suspect.crashes > 0
    task.deaths = suspect.crashes - 1 if killed else suspect.crashes
    shift = time.time() - time.monotonic()
    codes = [WORKER_DIED] * (len(suspect.losses) - 1) + [suspect.verdict or WORKER_DIED]
    task.losses = [
        LostStart(moment(begun + shift), moment(ended + shift), cause, code)
        for (begun, ended, cause), code in zip(suspect.losses, codes, strict=False)
    ]


def end_of_suspect(suspect: Suspect, task: Task) -> Outcome | None:
    """How a suspect ends whose handler is not to be entered again; None where it may be.

    A call outside is entered where its claim is not found: then it never was.
    """
    if suspect.verdict is not None:
        return lost(suspect.verdict, suspect.reason)
    handler = task.handler
    if handler is None or handler.redelivery or handler.effect == "external":
        return None
    reason = lost_reason(WORKER_DIED) if suspect.crashes else END_UNKNOWN
    return Outcome(State.FAILED, WORKER_DIED, reason=reason)


class CrashRecovery:
    """Looks suspects up before anything of theirs runs again."""

    def __init__(
        self,
        session: Session,
        rows: JournalWriter,
        checks: Checks,
        publish: Callable[[list[StatusWrite]], None],
        read: Callable[[int, Record], Task | Skip],
    ) -> None:
        """`read` parses a record, with all code of the user's that this takes."""
        self._read = read
        self._session = session
        self._rows = rows
        self._checks = checks
        self._publish = publish

    def end_backends(self, suspect: Suspect) -> list[Backend]:
        """Ends what dead workers left at work in the database; those that do not end.

        Nobody waits for them here: a disk that does not answer may keep one for hours.
        """
        return self._session.unended(suspect.backends, END_WAIT)

    def settle(self, suspect: Suspect, tasks: list[Task], chunk: ChunkRun) -> list[Task]:
        """Looks, once the dead backends are gone; returns the task where it has to go on."""
        if not tasks:
            return []
        (task,) = tasks
        name = task.envelope.id
        stored = self._rows.find(self._session.cursor(), [name]).get(name)
        if suspect.verdict == ASK:
            self._ask(task, stored, suspect, chunk)
            return []
        if stored is not None and _settled(stored, suspect, task):
            if stored.state == State.RUNNING or _asks_late(task, stored, suspect):
                self._end_claim(task, stored, suspect, chunk)
            else:
                self._answer(task, stored, chunk)
            return []
        crashes = task.deaths + _crashes(stored)
        if suspect.verdict is None and task.deaths and crashes >= MOST_CRASHES:
            suspect = suspect._replace(verdict=WORKER_DIED)
            task.lost -= 1  # the last one is this one
        outcome = end_of_suspect(suspect, task)
        if outcome is None and suspect.unclear >= LOSSES:
            outcome = failed_by(ConnectionLostEachTime(suspect.unclear, CommitUnclear(_LOST)))
        if outcome is not None:
            task.end(outcome)
            chunk.decided.add(task.index)
        return [task]

    def _end_claim(
        self, task: Task, stored: StoredRequest, suspect: Suspect, chunk: ChunkRun
    ) -> None:
        """A call whose worker died: in doubt, where its check does not find out more.

        The check is asked while it may be believed not to be what killed the worker.
        """
        blamed = suspect.crashes > 0 and suspect.verdict not in _KILLED
        task.deaths = int(blamed)
        if stored.state == State.IN_DOUBT:
            task.deaths -= 1  # who found its lease run out has counted a crash
        not_done = None
        if _has_check(task, suspect):
            if not chunk.start(task.index, task.timeout):
                chunk.give_back([task])
                return
            if self._parse(task) is not None:
                not_done = _not_done(task, stored, suspect)
            else:
                chunk.clear()  # nothing is asked, and its end takes what the database takes
        code = suspect.verdict or WORKER_DIED
        doubt = Outcome(State.IN_DOUBT, code, reason=suspect.reason or lost_reason(code))
        self._checks.end_lost(task, stored, doubt, not_done, chunk)
        chunk.clear()

    def _ask(
        self, task: Task, stored: StoredRequest | None, suspect: Suspect, chunk: ChunkRun
    ) -> None:
        """A request in doubt: what its check can't tell stays as it is, as does what has ended.

        Once only, as it may be what ends workers; but for one that had its time, nobody counts it.
        """
        if stored is None or stored.state != State.IN_DOUBT:
            pass
        elif suspect.crashes:
            if _had_its_time(suspect, task):
                self._checks.leave_in_doubt(stored)
        elif _has_check(task, suspect):
            if not chunk.start(task.index, task.timeout):
                chunk.give_back([task])
                return
            if (again := self._parse(task)) is None:
                self._checks.not_asked(task)
            else:
                not_done = TOO_LATE if has_expired(again) else _without_effect(stored)
                self._checks.end_doubt(task, stored, not_done, chunk)
            chunk.clear()
        chunk.settled.add(task.index)

    def _parse(self, task: Task) -> Task | None:
        """Gives a task the payload that its check has to see; the task as read, or None."""
        try:
            again = self._read(task.index, task.record)
        except BaseException:  # noqa: BLE001 - code of the user's: then there is nothing to ask about
            return None
        if isinstance(again, Skip) or not (again.outcome is None or has_expired(again)):
            return None
        task.payload = again.payload
        return again

    def _answer(self, task: Task, stored: StoredRequest, chunk: ChunkRun) -> None:
        self._publish([stored_status(task, stored, task.handler, datetime.now(UTC))])
        chunk.tally.counts[Count(task.envelope.type, State(stored.state), stored.code)] += 1
        chunk.settled.add(task.index)


def _has_check(task: Task, suspect: Suspect) -> bool:
    return task.handler is not None and task.handler.check is not None and suspect.crashes <= 1


def _had_its_time(suspect: Suspect, task: Task) -> bool:
    begun, ended, _ = suspect.losses[-1] if suspect.losses else (0.0, 0.0, "")
    return ended - begun >= task.timeout


def _asks_late(task: Task, stored: StoredRequest, suspect: Suspect) -> bool:
    """The dead worker's claim ran out before anybody looked: its check is asked all the same."""
    doubted = stored.state == State.IN_DOUBT and stored.code == WORKER_DIED
    return doubted and stored.token in suspect.tokens and _has_check(task, suspect)


def _not_done(task: Task, stored: StoredRequest, suspect: Suspect) -> Outcome:
    """How a call ends that had no effect."""
    if suspect.verdict in _KILLED:
        return lost(suspect.verdict, suspect.reason)
    dead = task.deaths + stored.crashes >= MOST_CRASHES
    return Outcome(
        State.DEAD if dead else State.FAILED, WORKER_DIED, reason=lost_reason(WORKER_DIED)
    )


def _without_effect(stored: StoredRequest) -> Outcome:
    """How a request in doubt ends that had no effect: as its run would have without one outside."""
    if stored.code in _KILLED:
        return lost(stored.code, stored.reason)  # who cancelled it, and why
    dead = stored.code == WORKER_DIED and stored.crashes >= MOST_CRASHES
    return Outcome(
        State.DEAD if dead else State.FAILED, stored.code, error=stored.error, reason=_NOTHING
    )


def _crashes(stored: StoredRequest | None) -> int:
    return 0 if stored is None else stored.crashes


def _settled(stored: StoredRequest, suspect: Suspect, task: Task) -> bool:
    """The dead worker had claimed it, or committed its row."""
    if stored.state == State.RUNNING:
        return stored.token in suspect.tokens
    if task.claim is not None:
        return stored.state != State.WAITING or stored.token != task.claim
    return task.place == (stored.topic, stored.partition, stored.kafka_offset)
