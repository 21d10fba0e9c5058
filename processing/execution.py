"""Runs a chunk: look up, answer duplicates, run handlers, journal, COMMIT, publish.

    read -> look up ids in the journal -> answer what stands there, refuse conflicts
         -> run handlers -> write rows -> COMMIT -> publish statuses -> report

A chunk is one transaction where nothing goes wrong. What was overtaken by another copy is redone
from the look-up; what cannot be committed together is halved down to the one request at fault.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import psycopg
from structlog.stdlib import BoundLogger

from feedback.errors import Malformed
from feedback.record import TYPE, Record
from feedback.rows import Letter, Overtaken, Rows
from feedback.states import (
    CONFLICT,
    DATABASE_UNAVAILABLE,
    DUPLICATE,
    FINAL,
    MALFORMED,
    WORKER_DIED,
    State,
)
from feedback.status import encode_status
from feedback.store import StatusWrite
from processing.app import App
from processing.decoder import Skip
from processing.external import External
from processing.outcomes import Outcome, outcome_of, safe_text
from processing.segments import ENDED, Broken, Segments, Work
from processing.session import CommitUnclear, Session
from processing.task import DEFAULT_TTL, Limits, Task, read_task

REDO = 10
"""Tries of a chunk that loses a race, before it is halved."""
LONG_RUN = 1.0
"""Seconds; a type that takes longer says that it runs."""
IDLE_MARGIN = 60.0
RACES = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
Publish = Callable[[list[StatusWrite]], None]


class Suspect(NamedTuple):
    """What to do about a record whose worker died."""

    verdict: str | None
    """What to store where the journal has no row of this run; None: run it again."""
    backend: tuple[int, str] | None
    """The dead worker's backend, to be ended before the look-up."""
    token: str | None
    """The dead chunk's token."""


@dataclass(slots=True)
class Chunk:
    """Records to run together; with a suspect exactly one."""

    number: int
    token: str
    records: list[Record]
    suspect: Suspect | None = None


@dataclass(slots=True)
class Report:
    """What became of a chunk."""

    returned: list[int] = field(default_factory=list)
    """Indices that were not run, for no fault of theirs."""
    unclear: list[int] = field(default_factory=list)
    """Indices whose COMMIT may have landed."""
    times: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Kind -> (requests, seconds in handlers)."""
    counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(type, state, code) -> n."""
    database_up: bool = True
    backend: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """How chunks are run. Times in seconds."""

    ordering: Literal["key", "partition", "none"] = "key"
    schema: str = "oncepool"
    segment: int = 25
    default_timeout: float = 300.0
    max_payload: int = 1024 * 1024
    lease: float = 60.0
    lock_timeout: float = 30.0
    statement_timeout: float = 0.0
    prepare_threshold: int | None = 5


class Executor:
    """Runs chunks on one database connection."""

    def __init__(
        self,
        app: App,
        database_url: str,
        publish: Publish,
        settings: ExecutorSettings,
        log: BoundLogger,
    ) -> None:
        self._app = app
        self._publish = publish
        self._settings = settings
        self._log = log
        self._limits = Limits(settings.default_timeout, settings.max_payload)
        self._rows = Rows(settings.schema)
        self._session = Session(
            database_url,
            lock_timeout=settings.lock_timeout,
            statement_timeout=settings.statement_timeout,
            # A handler that computes keeps its transaction idle, so its deadline comes first.
            idle_timeout=_longest(app, settings.default_timeout) + IDLE_MARGIN,
            prepare_threshold=settings.prepare_threshold,
        )
        self._means: dict[str, float] = {}
        self._segments = Segments(self._session, settings.segment, self._say_running)
        self._external = External(
            self._session, self._rows, settings.lease, publish, self._say_running, log
        )

    @property
    def backend(self) -> tuple[int, str] | None:
        """The present database backend, (pid, start)."""
        return self._session.backend

    def connect(self) -> tuple[int, str] | None:
        """Connects; returns the backend, or None where the database is away."""
        try:
            self._session.connect()
        except psycopg.OperationalError as error:
            self._log.error("database away", error=safe_text(error))
        return self._session.backend

    def close(self) -> None:
        """Lets go of the connection."""
        self._session.drop()

    def run(self, chunk: Chunk, work: Work) -> Report:
        """Runs a chunk to its end; never raises for what a request or the database does."""
        job = _Job(chunk, work, Report())
        tasks, letters = self._read(chunk, job)
        plain = [t for t in tasks if t.effect == "none" and t.outcome is None]
        self._run_plain(plain, job)
        rest = [t for t in tasks if t not in plain] if plain else tasks
        try:
            self._session.connect()
            if chunk.suspect is not None:
                rest = self._settle_suspect(chunk.suspect, rest, job)
            self._write_letters(letters, job)
            for group in self._groups(rest):
                self._run_group(group, job)
        except psycopg.OperationalError as error:
            if not self._session.lost:
                raise
            # Dead letters have nobody who sends them again: they wait for the database.
            job.report.unclear += [i for i in letters if i not in job.settled]
            self._database_away(error, [t for t in rest if t.index not in job.settled], job)
        work.finish()
        job.report.backend = self._session.backend
        job.report.counts = dict(job.counts)
        return job.report

    # Steps

    def _read(self, chunk: Chunk, job: _Job) -> tuple[list[Task], dict[int, Letter]]:
        tasks: list[Task] = []
        letters: dict[int, Letter] = {}
        for index, record in enumerate(chunk.records):
            try:
                task = read_task(self._app, index, record, self._limits)
            except Malformed as error:
                letters[index] = Letter(error.id, MALFORMED, safe_text(error), record)
                continue
            if isinstance(task, Skip):
                job.counts["", "skipped", "skip"] += 1
                continue
            tasks.append(task)
        return tasks, letters

    def _groups(self, tasks: list[Task]) -> Iterable[list[Task]]:
        """Tasks that share transactions: single handlers, each batch handler, external ones.

        Where one key is used by several groups its order counts, and each group ends where the
        next one begins.
        """
        if not tasks:
            return []
        kinds = {_group_of(t) for t in tasks}
        groups: list[tuple[str, list[Task]]] = []
        if len(kinds) == 1:
            groups = [(kinds.pop(), tasks)]
        elif _keys_meet(tasks):
            for task in tasks:
                kind = _group_of(task)
                if not groups or groups[-1][0] != kind:
                    groups.append((kind, []))
                groups[-1][1].append(task)
        else:
            for kind in sorted(kinds):
                groups.append((kind, [t for t in tasks if _group_of(t) == kind]))
        if self._settings.ordering != "partition":
            for _, group in groups:
                # Handlers lock the rows of their keys: in one order, or chunks deadlock.
                group.sort(key=_key_of)
        return [group for _, group in groups]

    def _run_group(self, tasks: list[Task], job: _Job) -> None:
        while tasks:
            ids: set[str] = set()
            now: list[Task] = []
            later: list[Task] = []
            for task in tasks:
                # A second message of one id waits for the first one's row.
                (later if task.envelope.id in ids else now).append(task)
                ids.add(task.envelope.id)
            self._transact(now, job)
            tasks = later

    def _transact(self, tasks: list[Task], job: _Job) -> None:
        """Takes tasks to their end, in as few transactions as go well."""
        tries = REDO
        while tasks and tries:
            tries -= 1
            try:
                tasks = self._round(tasks, job)
                tries = REDO
            except Broken as broken:
                tasks = self._after_broken(broken, tasks, job)
            except CommitUnclear:
                job.report.unclear += [t.index for t in tasks if t.index not in job.settled]
                job.settled.update(t.index for t in tasks)
                raise psycopg.OperationalError("the answer to COMMIT was lost") from None
            except (Overtaken, *RACES) as error:
                self._session.rollback()
                self._log.debug("redone from the look-up", why=safe_text(error))
            except psycopg.Error as error:
                self._session.rollback()
                if self._session.lost:
                    raise
                if not _is_taken_id(error):
                    self._halve(tasks, error, job)
                    return
            tasks = [t for t in tasks if t.index not in job.settled]
        if tasks:
            self._halve(tasks, Overtaken(f"still overtaken after {REDO} tries"), job)

    def _halve(self, tasks: list[Task], error: Exception, job: _Job) -> None:
        tasks = [t for t in tasks if t.index not in job.settled]
        if len(tasks) > 1:
            middle = len(tasks) // 2
            self._transact(tasks[:middle], job)
            self._transact(tasks[middle:], job)
        elif tasks and tasks[0].index not in job.settled_outcomes:
            tasks[0].end(outcome_of(error))
            job.settled_outcomes.add(tasks[0].index)
            self._transact(tasks, job)
        elif tasks:
            self._log.error(
                "a failure could not be journaled",
                request_id=tasks[0].envelope.id,
                type=tasks[0].envelope.type,
                error=safe_text(error),
            )
            self._publish([tasks[0].status(datetime.now(UTC), bump=True)])
            job.settle(tasks[0])

    def _round(self, tasks: list[Task], job: _Job) -> list[Task]:
        """One transaction; returns what is left for the next one."""
        session = self._session
        session.begin()
        cursor = session.cursor()
        now = datetime.now(UTC)
        found = self._rows.find(cursor, [t.envelope.id for t in tasks])
        answered: list[Task] = []
        conflicts: list[Task] = []
        fresh: list[Task] = []
        ended: list[Task] = []
        external: list[Task] = []
        for task in tasks:
            task.stored = found.get(task.envelope.id)
            if _conflicts(task):
                conflicts.append(task)
            elif _stands(task):
                answered.append(task)
            elif task.index in job.settled_outcomes or _known_end(task):
                ended.append(task)
            elif task.effect == "external":
                external.append(task)
            else:
                fresh.append(task)
        ran, recalled, left = self._segments.run(fresh, job.work)
        job.work.finish()
        self._write(cursor, [*ended, *ran], answered, conflicts, now)
        session.commit()
        self._finish(answered, conflicts, [*ended, *ran], recalled, now, job)
        return left + self._external.run(external, job.chunk.token, job.work, job)

    def _write(
        self,
        cursor: psycopg.Cursor[object],
        ended: Sequence[Task],
        answered: Sequence[Task],
        conflicts: Sequence[Task],
        now: datetime,
    ) -> None:
        """Journal rows, in the order of rules that all chunks follow: locks, COPY, updates."""
        rows = self._rows
        if answered:
            rows.add_resends(cursor, [t.envelope.id for t in answered])
        new = [t.row(now) for t in ended if t.stored is None]
        if new:
            rows.insert(cursor, new)
        changed = [(t.row(now), t.stored) for t in ended if t.stored is not None]
        if changed:
            rows.update(cursor, changed)
        for task in conflicts:
            rows.add_letter(cursor, _conflict(task))
        for task in ended:
            if task.outcome is not None and task.outcome.state == State.FAILED:
                started = datetime.fromtimestamp(task.started or now.timestamp(), UTC)
                rows.add_attempt(cursor, task.row(now), started)

    def _finish(
        self,
        answered: Sequence[Task],
        conflicts: Sequence[Task],
        ended: Sequence[Task],
        recalled: Sequence[Task],
        now: datetime,
        job: _Job,
    ) -> None:
        """After COMMIT: publish, count, report."""
        writes = [t.status(now) for t in ended]
        for task in answered:
            if task.stored is not None:
                writes.append(task.stored_status(task.stored, now))
                job.counts[task.envelope.type, task.stored.state, DUPLICATE] += 1
        self._publish(writes)
        for task in conflicts:
            job.counts[task.envelope.type, "dead_letter", CONFLICT] += 1
        for task in ended:
            job.count(task)
            self._measure(task, job)
        job.report.returned += [t.index for t in recalled]
        for settled in (answered, conflicts, ended, recalled):
            job.settled.update(t.index for t in settled)

    def _measure(self, task: Task, job: _Job) -> None:
        if task.started is None:
            return
        count, seconds = job.report.times.get(task.kind, (0, 0.0))
        job.report.times[task.kind] = (count + 1, seconds + task.seconds)
        self._means[task.envelope.type] = task.seconds

    def _say_running(self, task: Task) -> None:
        task.started = time.time()
        external = task.effect == "external"
        if external or self._means.get(task.envelope.type, 0.0) > LONG_RUN:
            self._publish([task.running_status(datetime.now(UTC))])

    # Without the journal

    def _run_plain(self, tasks: Sequence[Task], job: _Job) -> None:
        """Pure computation: no row, its result only in Redis."""
        singles = [t for t in tasks if t.handler is not None and not t.handler.batch]
        batches: dict[str, list[Task]] = {}
        for task in tasks:
            if task.handler is not None and task.handler.batch:
                batches.setdefault(task.envelope.type, []).append(task)
        verdict = job.chunk.suspect.verdict if job.chunk.suspect else None
        for group in [singles, *batches.values()]:
            if not group:
                continue
            recalled: list[Task] = []
            if verdict:
                ran = group
                for task in group:
                    task.end(_lost(verdict))
            else:
                ran, recalled, _ = self._segments.run(group, job.work)
            now = datetime.now(UTC)
            failed = State.FAILED
            self._publish(
                [
                    t.status(now, bump=t.outcome is not None and t.outcome.state == failed)
                    for t in ran
                ]
            )
            for task in ran:
                job.count(task)
                self._measure(task, job)
            job.report.returned += [t.index for t in recalled]
            job.settled.update(t.index for t in group)

    def _write_letters(self, letters: dict[int, Letter], job: _Job) -> None:
        if not letters:
            return
        session = self._session
        session.begin()
        try:
            for letter in letters.values():
                self._rows.add_letter(session.cursor(), letter)
            session.commit()
        except CommitUnclear as error:
            raise psycopg.OperationalError(str(error)) from error
        finally:
            session.rollback()
        now = datetime.now(UTC)
        writes = []
        for letter in letters.values():
            kind = letter.record[TYPE] or ""
            job.counts[kind, "dead_letter", MALFORMED] += 1
            if letter.request_id is not None:
                value = encode_status(
                    letter.request_id, kind, State.FAILED, 1, code=MALFORMED, attempt=1, at=now,
                    reason=letter.error,
                )  # fmt: skip
                writes.append(StatusWrite(letter.request_id, value, DEFAULT_TTL, bump=True))
        self._publish(writes)
        job.settled.update(letters)

    # Trouble

    def _after_broken(self, broken: Broken, tasks: list[Task], job: _Job) -> list[Task]:
        """A handler ended the transaction, or its connection broke under it."""
        self._session.rollback()
        self._session.connect()  # raises where the database is away: then it was not the handler
        culprit = broken.culprit
        if broken.xid and self._session.committed(broken.xid):
            position = tasks.index(culprit)
            for task in tasks[:position]:
                if task.outcome is not None:
                    job.settled_outcomes.add(task.index)
            culprit.end(Outcome(State.IN_DOUBT, ENDED.code, reason=ENDED.reason))
        else:
            culprit.end(ENDED)
        job.settled_outcomes.add(culprit.index)
        self._log.error("transaction ended by a handler", request_id=culprit.envelope.id,
                        type=culprit.envelope.type)  # fmt: skip
        return [t for t in tasks if t.index not in job.settled]

    def _database_away(self, error: Exception, tasks: Sequence[Task], job: _Job) -> None:
        """Fresh requests are told to come again; whose COMMIT may have landed say nothing."""
        self._log.error("database away", error=safe_text(error), requests=len(tasks))
        self._session.drop()
        job.report.database_up = False
        if job.chunk.suspect is not None:
            job.report.returned += [t.index for t in tasks]
            return
        now = datetime.now(UTC)
        # A claim that was started is left to its lease: it may have happened.
        tasks = [t for t in tasks if t.effect != "external" or t.started is None]
        for task in tasks:
            task.stored = None
            task.end(Outcome(State.FAILED, DATABASE_UNAVAILABLE, reason="the database is away"))
            job.count(task)
        self._publish([t.status(now, bump=True) for t in tasks])

    def _settle_suspect(self, suspect: Suspect, tasks: list[Task], job: _Job) -> list[Task]:
        """Finds out what a dead worker left of a request; returns it where it has to run."""
        if suspect.backend is not None:
            self._session.end_backend(suspect.backend)
        if not tasks:
            return []
        task = tasks[0]
        stored = self._rows.find(self._session.cursor(), [task.envelope.id]).get(task.envelope.id)
        now = datetime.now(UTC)
        if stored is not None and stored.state == State.RUNNING and stored.token == suspect.token:
            self._external.doubt(task, stored, suspect.verdict or WORKER_DIED)
            job.settled.add(task.index)
            return []
        here = (task.envelope.topic, task.envelope.partition, task.envelope.offset)
        landed = stored is not None and here == (
            stored.topic, stored.partition, stored.kafka_offset
        )  # fmt: skip
        if landed and stored is not None and stored.state != State.RUNNING:
            self._publish([task.stored_status(stored, now)])
            job.counts[task.envelope.type, stored.state, stored.code] += 1
            job.settled.add(task.index)
            return []
        if suspect.verdict is not None:
            task.end(_lost(suspect.verdict))
            job.settled_outcomes.add(task.index)
        return [task]


@dataclass(slots=True)
class _Job:
    """What has become of a chunk so far."""

    chunk: Chunk
    work: Work
    report: Report
    settled: set[int] = field(default_factory=set)
    """Indices that need nothing more."""
    settled_outcomes: set[int] = field(default_factory=set)
    """Indices whose outcome stands before their handler runs."""
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def count(self, task: Task) -> None:
        """Counts how a task ended."""
        if task.outcome is not None:
            state, code = task.outcome.state, task.outcome.code
            self.counts[task.envelope.type, str(state), str(code)] += 1

    def settle(self, task: Task, *, returned: bool = False) -> None:
        """A task needs nothing more."""
        self.settled.add(task.index)
        if returned:
            self.report.returned.append(task.index)
        else:
            self.count(task)


def _longest(app: App, default: float) -> float:
    """Seconds of the longest run that any handler allows."""
    own = [h.max_timeout or h.timeout or default for h in app.handlers.values()]
    return max(own, default=default)


def _lost(verdict: str) -> Outcome:
    """How a request ends whose worker had to be given up."""
    state = State.DEAD if verdict == WORKER_DIED else State.FAILED
    return Outcome(state, verdict, reason="its worker was lost while it ran")


def _group_of(task: Task) -> str:
    if task.effect == "external":
        return "external"
    handler = task.handler
    return f"batch {handler.type}" if handler is not None and handler.batch else ""


def _keys_meet(tasks: Iterable[Task]) -> bool:
    """Whether one key stands in two groups."""
    groups: dict[bytes, str] = {}
    return any(
        t.envelope.key is not None
        and groups.setdefault(t.envelope.key, _group_of(t)) != _group_of(t)
        for t in tasks
    )


def _key_of(task: Task) -> bytes:
    return task.envelope.key or b""


def _conflicts(task: Task) -> bool:
    """The same id with another payload, as far as both fingerprints are known."""
    stored = task.stored
    if stored is None:
        return False
    if task.handler is not None and stored.type != task.envelope.type:
        return True
    return (
        task.fingerprint is not None
        and stored.fingerprint is not None
        and stored.fingerprint != task.fingerprint
    )


def _conflict(task: Task) -> Letter:
    error = f"request id {task.envelope.id!r} belongs to a request with another payload"
    return Letter(task.envelope.id, CONFLICT, safe_text(error), task.record)


def _stands(task: Task) -> bool:
    """The journal has an answer: nothing runs."""
    stored = task.stored
    if stored is None:
        return False
    if stored.state == State.IN_DOUBT:
        return task.handler is None or task.handler.check is None or _known_end(task)
    return stored.state in FINAL or stored.state in (State.RUNNING, State.WAITING)


def _known_end(task: Task) -> bool:
    """It ends without its handler: unknown type, invalid payload, expired."""
    return task.outcome is not None and task.started is None


def _is_taken_id(error: psycopg.Error) -> bool:
    """Somebody else finished this id since the look-up."""
    return (
        isinstance(error, psycopg.errors.UniqueViolation)
        and error.diag.constraint_name == "requests_pkey"
        and error.diag.table_name == "requests"
    )
