"""Runs a chunk: look up, answer duplicates, run handlers, journal, COMMIT, publish.

    read -> look up ids in the journal -> answer what stands there, refuse conflicts
         -> run handlers -> write rows -> COMMIT -> publish statuses -> report

A chunk is one transaction where nothing goes wrong: `transaction.py` is that transaction, and
`records.py` says how an end is written down. Where something does, `bisection.py` makes as many
more as it takes. The other parts are asked only where there is something for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import psycopg

from feedback.backend import Backend
from feedback.contract.counts import SKIP, Count, NotRun
from feedback.contract.record import TYPE, Record
from feedback.contract.states import DeadLetterReason
from feedback.errors import Malformed
from feedback.journal.coalescing import Coalescing
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.privileges import Use
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.app import App
from processing.handlers.decoder import Skip
from processing.handlers.outcomes import describe, safe_text
from processing.ipc.frames import ASK, Report
from processing.logs import BoundLogger
from processing.settings import ExecutorSettings
from processing.worker.bisection import Bisection
from processing.worker.call_ends import CallEnds
from processing.worker.chunk_durations import ChunkDurations
from processing.worker.chunk_run import ChunkRun
from processing.worker.crash_recovery import CrashRecovery, note_crashes
from processing.worker.dead_letters import DeadLetters
from processing.worker.dedup import groups, lane_of, once_each
from processing.worker.effect_external import EffectExternal
from processing.worker.effect_none import EffectNone
from processing.worker.effect_transaction import EffectTransaction
from processing.worker.failure_report import FailureReport
from processing.worker.journal_uses import uses_of
from processing.worker.lease_keeper import LeaseKeeper
from processing.worker.outages import DatabaseAway, Outages
from processing.worker.reading import Limits, read_task
from processing.worker.records import ResultLog
from processing.worker.seated_run import SeatedRun
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.traced_runs import TracedRuns, calls_of
from processing.worker.transaction import Transaction

IDLE_MARGIN = 60.0
Publish = Callable[[list[StatusWrite]], None]


class JournalAccess(NamedTuple):
    """All that an executor knows of the journal."""

    session: Session
    outages: Outages
    rows: JournalWriter
    coalescing: Coalescing


class Executor:
    """Runs chunks on one database connection."""

    def __init__(
        self,
        *,
        app: App,
        database_url: str,
        publish: Publish,
        connected: Callable[[Backend], None],
        settings: ExecutorSettings,
        log: BoundLogger,
        journal: JournalAccess | None = None,
        runs: TracedRuns | None = None,
    ) -> None:
        """`connected` is told of each new connection before anything is done there.

        `journal` stands in for the one of `database_url`; `runs`: where tracing is on.
        """
        self._app, self._settings, self._publish, self._log = app, settings, publish, log
        session, outages, rows, coalescing = (
            _access(app, database_url, connected, settings, log) if journal is None else journal
        )
        self._session, self._outages = session, outages
        self._limits = Limits(
            settings.default_timeout, settings.max_payload, settings.instance, session.clock.time
        )
        calls, settling = calls_of(session, publish, runs)
        segments = EffectTransaction(session, calls, settings.segment)
        results = ResultLog(
            settings.schema, wanted=settings.results, duplicates=settings.results_duplicates
        )
        ends = CallEnds(
            session, outages, rows, results, lease=settings.lease, publish=publish, log=log,
            settling=settling,
        )  # fmt: skip
        self.leases = LeaseKeeper(session, settings, log)
        self._external = EffectExternal(session, outages, calls, rows, ends, self.leases, log)
        self._none, self._failures = EffectNone(segments, publish), FailureReport(app, log)
        self._letters = DeadLetters(session, outages, rows, publish, log)
        self._recovery = CrashRecovery(
            session, rows, self._external.checks, publish, self._read_again
        )
        transaction = Transaction(
            handlers=app.handlers, session=session, outages=outages, rows=rows, segments=segments,
            patience=settings.lease, coalescing=coalescing, results=results, publish=publish,
            settling=settling,
        )  # fmt: skip
        self._bisection = Bisection(
            session=session, transaction=transaction, outages=outages, schema=settings.schema,
            patience=settings.lease, publish=publish, log=log,
        )  # fmt: skip
        self._pure = any(h.effect == "none" for h in app.handlers.values())  # without a look-up

    def connect(self) -> None:
        """Connects where the database can be reached."""
        try:
            self._outages.connect()
        except DatabaseAway as away:
            self._log.error("database away", error=safe_text(away))

    def close(self) -> None:
        """Lets go of the connection."""
        self._session.drop()

    def begin(self, chunk: ChunkRun) -> Report | None:
        """Runs a chunk to its end; never raises for what a request or the database does.

        None where its call goes on by itself, until `resume`.
        """
        self._enter(chunk)
        return None if chunk.under_way else self._leave(chunk)

    def resume(self, chunk: SeatedRun) -> Report:
        """A call that went on by itself has ended: takes its request to the end."""
        task, chunk.call = chunk.call, None
        if task is None:
            raise AssertionError(f"no call of chunk {chunk.number} has ended")
        kind = self._external if task.effect == "external" else self._none
        try:
            self._run(kind.end_call(task, chunk), {}, chunk)
        except MemoryError:
            raise  # of this process's own work: what is said for want of it would be wrong
        except BaseException as error:  # noqa: BLE001 - the end of a request, never of its worker
            self._give_up(error, chunk.open([task]), chunk)
        return self._leave(chunk)

    def _enter(self, chunk: ChunkRun) -> None:
        chunk.lane_of = self._lane_of
        chunk.tally.durations = ChunkDurations() if self._settings.metrics else None
        tasks, letters = self._read(chunk)
        if chunk.seated:
            # What a decoder made of it may be of another type, whose handler is no `async def`.
            chunk.give_back([t for t in tasks if t.handler and not t.handler.asynchronous])
            tasks = chunk.open(tasks)
        rest = tasks
        try:
            if self._pure:
                rest = self._none.run_fresh(tasks, chunk)
            self._run(rest, letters, chunk)
        except MemoryError:
            raise  # of this process's own work: what is said for want of it would be wrong
        except BaseException as error:  # noqa: BLE001 - the end of a request, never of its worker
            # Dead letters have nobody who sends them again: whatever came first, they come again.
            chunk.unclear += chunk.keep([i for i in letters if i not in chunk.settled])
            self._give_up(error, chunk.open(rest), chunk)

    def _leave(self, chunk: ChunkRun) -> Report:
        chunk.clear()
        if chunk.tally.failed:
            self._failures.tell(chunk)
        return chunk.finish()

    def _lane_of(self, record: Record) -> Hashable:
        return lane_of(record, self._settings.ordering)

    def _read(self, chunk: ChunkRun) -> tuple[list[Task], dict[int, DeadLetter]]:
        tasks: list[Task] = []
        letters: dict[int, DeadLetter] = {}
        malformed = DeadLetterReason.MALFORMED
        suspect = chunk.suspect
        trusted = suspect is None or suspect.verdict is None
        handlers, default = self._app.handlers, self._settings.default_timeout
        for index, record in enumerate(chunk.records):
            handler = handlers.get(record[TYPE] or "")
            chunk.read(index, default if handler is None else handler.timeout or default)
            try:
                task = read_task(self._app, index, record, self._limits, trusted=trusted)
            except Malformed as error:
                letters[index] = DeadLetter(error.id, malformed, safe_text(error), record)
                continue
            except MemoryError:
                raise  # whatever was said of the record now would be said for good
            except BaseException as error:  # noqa: BLE001 - nobody thought of it: this record's end
                why = f"it could not be read: {describe(error)}"
                letters[index] = DeadLetter(None, malformed, why, record)
                continue
            if isinstance(task, Skip):
                if chunk.keep([index]):
                    chunk.tally.counts[Count("", NotRun.SKIPPED, SKIP)] += 1
                continue
            if suspect is not None:
                note_crashes(task, suspect)
            tasks.append(task)
        chunk.clear()
        return tasks, letters

    def _read_again(self, index: int, record: Record) -> Task | Skip:
        return read_task(self._app, index, record, self._limits)

    def _run(self, tasks: list[Task], letters: dict[int, DeadLetter], chunk: ChunkRun) -> None:
        if self._session.lost or self._outages.refused:
            self._outages.connect()
        suspect = chunk.suspect
        if suspect is not None and (tasks or letters):
            found = tasks
            chunk.unended = self._outages.redo(lambda: self._recovery.end_backends(suspect))
            if chunk.unended:
                chunk.give_back(tasks)
                chunk.returned += chunk.keep(list(letters))
                return
            tasks = self._outages.redo(lambda: self._recovery.settle(suspect, found, chunk))
        if mine := chunk.keep(list(letters)):  # what was recalled is another's to write and count
            self._letters.write({index: letters[index] for index in mine}, chunk)
        for group in groups(tasks, self._settings.ordering):
            rest: Sequence[Task] = group
            while rest:
                # A second message of an id waits for the first one's row.
                first, rest = once_each(rest)
                while first:
                    apart = self._transact(first, chunk)
                    first = self._run_apart(apart, chunk) if apart else []

    def _transact(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Takes tasks of different ids to their end; returns those whose effects are elsewhere."""
        apart: list[Task] = []
        self._bisection.run(tasks, chunk, apart)
        return chunk.open(apart)

    def _run_apart(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Runs what was looked up and has its effects elsewhere than in the chunk's transaction.

        Returns what has to be looked up again, or written.
        """
        left = self._none.run([t for t in tasks if t.effect == "none"], chunk)
        return left + self._external.run([t for t in tasks if t.effect == "external"], chunk)

    def _give_up(self, error: BaseException, tasks: list[Task], chunk: ChunkRun) -> None:
        """The database is away, or something that nobody thought of, with the database at hand."""
        if isinstance(error, DatabaseAway):
            self._database_away(error, tasks, chunk)
            return
        self._log.error("unexpected", error=describe(error), exc_info=error)
        suspect = chunk.suspect
        if suspect is not None and isinstance(error, psycopg.Error):
            if suspect.verdict == ASK:
                return  # it stays in doubt, and is asked about again in its time
            chunk.refused = True  # another time: for how long it waits the main process decides
            chunk.give_back(tasks)
            return
        try:
            self._outages.connect()
            for task in tasks:
                self._bisection.fail(task, error, chunk)
        except DatabaseAway as away:
            self._database_away(away, chunk.open(tasks), chunk)

    def _database_away(self, away: DatabaseAway, tasks: Sequence[Task], chunk: ChunkRun) -> None:
        """Gives back what left nothing behind; of unknown commit outcomes nothing is said.

        Whether the database is away for all the main process finds out: it has them refused, or
        run again.
        """
        self._log.error("database away", error=safe_text(away), requests=len(tasks))
        chunk.clear()
        self._outages.rest()
        self._session.drop()
        chunk.database_up = False
        if chunk.suspect is None:
            # A call outside that was started is left to its lease: it may have happened.
            tasks = [t for t in tasks if t.effect != "external" or t.started is None]
        chunk.give_back(tasks)


def _access(
    app: App,
    url: str,
    connected: Callable[[Backend], None],
    settings: ExecutorSettings,
    log: BoundLogger,
) -> JournalAccess:
    """The journal in a database; `connect` makes the connection."""
    # A handler that computes keeps its transaction idle, so its deadline comes first.
    idle_timeout = _longest(app, settings.default_timeout) + IDLE_MARGIN
    session = Session(
        url,
        connected,
        lock_timeout=settings.lock_timeout,
        statement_timeout=settings.statement_timeout,
        idle_timeout=idle_timeout,
        prepare_threshold=settings.prepare_threshold,
    )
    schema = settings.schema
    uses = (*uses_of(app), *((Use.RESULTS,) if settings.results else ()))
    return JournalAccess(
        session, Outages(session, schema, log, uses), JournalWriter(schema), Coalescing(schema)
    )


def _longest(app: App, default: float) -> float:
    """Seconds of the longest run that any handler allows."""
    own = [h.max_timeout or h.timeout or default for h in app.handlers.values()]
    return max(own, default=default)
