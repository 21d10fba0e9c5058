"""Runs a chunk: look up, answer duplicates, run handlers, journal, COMMIT, publish.

    read -> look up ids in the journal -> answer what stands there, refuse conflicts
         -> run handlers -> write rows -> COMMIT -> publish statuses -> report

A chunk is one transaction where nothing goes wrong: `transaction.py` is that transaction,
`bisection.py` and `outages.py` say what is done where something does, `records.py` how an end is
written down.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import psycopg
from structlog.stdlib import BoundLogger

from feedback.contract.counts import SKIP, Count, NotRun
from feedback.contract.record import TYPE, Record
from feedback.contract.states import DeadLetterReason
from feedback.errors import Malformed
from feedback.journal.coalescing import Coalescing
from feedback.journal.rows import DeadLetter
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.app import App
from processing.handlers.decoder import Skip
from processing.handlers.outcomes import describe, safe_text
from processing.ipc.frames import Backend, Report
from processing.settings import ExecutorSettings
from processing.worker.bisection import Transactions
from processing.worker.calls import Calls
from processing.worker.chunk_run import ChunkRun
from processing.worker.crash_recovery import Suspects, note_crashes
from processing.worker.dead_letters import DeadLetters
from processing.worker.effect_external import External
from processing.worker.effect_none import Plain
from processing.worker.effect_transaction import Segments
from processing.worker.failure_report import FailureReport
from processing.worker.grouping import groups, lane_of, once_each
from processing.worker.outages import DatabaseAway, Outages
from processing.worker.parse import Limits, read_task
from processing.worker.records import ResultLog
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.transaction import Round

IDLE_MARGIN = 60.0
Publish = Callable[[list[StatusWrite]], None]


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
    ) -> None:
        """`connected` is told of each new connection before anything is done there."""
        self._app = app
        self._publish = publish
        self._settings = settings
        self._log = log
        self._limits = Limits(settings.default_timeout, settings.max_payload, settings.instance)
        session = self._session = Session(
            database_url,
            connected,
            lock_timeout=settings.lock_timeout,
            statement_timeout=settings.statement_timeout,
            # A handler that computes keeps its transaction idle, so its deadline comes first.
            idle_timeout=_longest(app, settings.default_timeout) + IDLE_MARGIN,
            prepare_threshold=settings.prepare_threshold,
        )
        rows = JournalWriter(settings.schema)
        outages = self._outages = Outages(session, settings.schema, log)
        calls = Calls(session, publish)
        segments = Segments(session, calls, settings.segment)
        results = ResultLog(
            settings.schema, wanted=settings.results, duplicates=settings.results_duplicates
        )
        self._external = External(
            session, outages, calls, rows, results, lease=settings.lease, publish=publish, log=log
        )
        self._plain = Plain(segments, publish)
        self._failures = FailureReport(app, log)
        self._letters = DeadLetters(session, outages, rows, publish, log)
        self._suspects = Suspects(session, rows, self._external, publish, self._read_again)
        coalescing = Coalescing(settings.schema)
        one = Round(app.handlers, session, rows, segments, coalescing, results, publish)
        self._transactions = Transactions(session, one, outages, settings.schema, publish, log)

    def connect(self) -> None:
        """Connects where the database can be reached."""
        try:
            self._outages.connect()
        except DatabaseAway as away:
            self._log.error("database away", error=safe_text(away))

    def close(self) -> None:
        """Lets go of the connection."""
        self._session.drop()

    def run(self, chunk: ChunkRun) -> Report:
        """Runs a chunk to its end; never raises for what a request or the database does."""
        chunk.lane_of = self._lane_of
        tasks, letters = self._read(chunk)
        rest = tasks
        try:
            rest = self._plain.run_fresh(tasks, chunk)
            self._run(rest, letters, chunk)
        except DatabaseAway as away:
            # Dead letters have nobody who sends them again: they wait for the database.
            chunk.unclear += [i for i in letters if i not in chunk.settled]
            self._database_away(away, chunk.open(rest), chunk)
        except BaseException as error:  # noqa: BLE001 - the end of a request, never of its worker
            self._give_up(error, chunk.open(rest), chunk)
        chunk.clear()
        if chunk.failed:
            self._failures.tell(chunk)
        return chunk.finish()

    def _lane_of(self, task: Task) -> Hashable:
        return lane_of(task, self._settings.ordering)

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
            except BaseException as error:  # noqa: BLE001 - nobody thought of it: this record's end
                why = f"it could not be read: {describe(error)}"
                letters[index] = DeadLetter(None, malformed, why, record)
                continue
            if isinstance(task, Skip):
                chunk.counts[Count("", NotRun.SKIPPED, SKIP)] += 1
                continue
            if suspect is not None:
                note_crashes(task, suspect)
            tasks.append(task)
        chunk.clear()
        return tasks, letters

    def _read_again(self, index: int, record: Record) -> Task | Skip:
        return read_task(self._app, index, record, self._limits)

    def _run(self, tasks: list[Task], letters: dict[int, DeadLetter], chunk: ChunkRun) -> None:
        self._outages.connect()
        suspect = chunk.suspect
        if suspect is not None:
            found = tasks
            tasks = self._outages.redo(lambda: self._suspects.settle(suspect, found, chunk))
        self._letters.write(letters, chunk)
        for group in groups(tasks, self._settings.ordering):
            rest: Sequence[Task] = group
            while rest:
                # A second message of an id waits for the first one's row.
                first, rest = once_each(rest)
                while first:
                    first = self._run_apart(self._transactions.run(first, chunk), chunk)

    def _run_apart(self, tasks: Sequence[Task], chunk: ChunkRun) -> list[Task]:
        """Runs what was looked up and has its effects elsewhere than in the chunk's transaction.

        Returns what has to be looked up again, or written.
        """
        left = self._plain.run([t for t in tasks if t.effect == "none"], chunk)
        return left + self._external.run([t for t in tasks if t.effect == "external"], chunk)

    def _give_up(self, error: BaseException, tasks: list[Task], chunk: ChunkRun) -> None:
        """Something that nobody thought of, with the database at hand."""
        self._log.error("unexpected", error=describe(error), exc_info=error)
        if chunk.suspect is not None and isinstance(error, psycopg.Error):
            chunk.give_back(tasks)  # the dead worker's backend does not end: look again later
            return
        try:
            self._outages.connect()
            for task in tasks:
                self._transactions.fail([task], error, chunk)
        except DatabaseAway as away:
            self._database_away(away, chunk.open(tasks), chunk)

    def _database_away(self, away: DatabaseAway, tasks: Sequence[Task], chunk: ChunkRun) -> None:
        """Gives back what left nothing behind; of unknown commit outcomes nothing is said.

        Whether the database is away for all the main process finds out: it has them refused, or
        run again.
        """
        self._log.error("database away", error=safe_text(away), requests=len(tasks))
        self._session.drop()
        chunk.database_up = False
        if chunk.suspect is None:
            # A call outside that was started is left to its lease: it may have happened.
            tasks = [t for t in tasks if t.effect != "external" or t.started is None]
        chunk.give_back(tasks)


def _longest(app: App, default: float) -> float:
    """Seconds of the longest run that any handler allows."""
    own = [h.max_timeout or h.timeout or default for h in app.handlers.values()]
    return max(own, default=default)
