"""Runs a chunk: look up, answer duplicates, run handlers, journal, COMMIT, publish.

    read -> look up ids in the journal -> answer what stands there, refuse conflicts
         -> run handlers -> write rows -> COMMIT -> publish statuses -> report

A chunk is one transaction where nothing goes wrong: `round.py` is that transaction,
`transactions.py` says what is done where something does, `ending.py` how an end is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import psycopg
from structlog.stdlib import BoundLogger

from feedback.contract.counts import SKIP, Count, NotRun
from feedback.contract.record import TOPIC
from feedback.contract.states import DATABASE_UNAVAILABLE, MALFORMED, State
from feedback.errors import Malformed
from feedback.journal.coalescing import Coalescing
from feedback.journal.rows import DeadLetter
from feedback.journal.writer import JournalWriter
from feedback.status.store import StatusWrite
from processing.handlers.app import App
from processing.handlers.decoder import Skip
from processing.handlers.outcomes import Outcome, describe, safe_text
from processing.ipc.frames import Report
from processing.settings import ExecutorSettings
from processing.worker.bisection import Transactions
from processing.worker.calls import Calls
from processing.worker.chunk_run import ChunkRun
from processing.worker.crash_recovery import Suspects, note_crashes
from processing.worker.dead_letters import Letters
from processing.worker.effect_external import External
from processing.worker.effect_none import Plain
from processing.worker.effect_transaction import Segments
from processing.worker.grouping import groups
from processing.worker.parse import Limits, read_task
from processing.worker.records import ResultLog, row_of, status_of
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.transaction import Round

IDLE_MARGIN = 60.0
Publish = Callable[[list[StatusWrite]], None]


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
        self._limits = Limits(settings.default_timeout, settings.max_payload, settings.instance)
        session = self._session = Session(
            database_url,
            lock_timeout=settings.lock_timeout,
            statement_timeout=settings.statement_timeout,
            # A handler that computes keeps its transaction idle, so its deadline comes first.
            idle_timeout=_longest(app, settings.default_timeout) + IDLE_MARGIN,
            prepare_threshold=settings.prepare_threshold,
        )
        rows = self._rows = JournalWriter(settings.schema)
        segments = Segments(session, Calls(session, publish), settings.segment)
        results = ResultLog(
            settings.schema, wanted=settings.results, duplicates=settings.results_duplicates
        )
        external = External(session, rows, results, settings.lease, publish, log)
        plain = self._plain = Plain(segments, publish)
        self._letters = Letters(session, rows, publish, log)
        self._suspects = Suspects(session, rows, external, publish)
        coalescing = Coalescing(settings.schema)
        runners = (segments, plain, external)
        one = Round(app.handlers, session, rows, runners, coalescing, results, publish)
        self._transactions = Transactions(session, one, publish, log)

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

    def run(self, chunk: ChunkRun) -> Report:
        """Runs a chunk to its end; never raises for what a request or the database does."""
        tasks, letters = self._read(chunk)
        rest = self._plain.run_fresh(tasks, chunk)
        try:
            self._run(rest, letters, chunk)
        except BaseException as error:  # noqa: BLE001 - the end of a request, never of its worker
            if self._session.lost:
                # Dead letters have nobody who sends them again: they wait for the database.
                chunk.unclear += [i for i in letters if i not in chunk.settled]
                self._database_away(error, chunk.open(rest), chunk)
            else:
                self._give_up(error, chunk.open(rest), chunk)
        chunk.clear()
        return chunk.finish(self._session.backend)

    def _read(self, chunk: ChunkRun) -> tuple[list[Task], dict[int, DeadLetter]]:
        tasks: list[Task] = []
        letters: dict[int, DeadLetter] = {}
        suspect = chunk.suspect
        trusted = suspect is None or suspect.verdict is None
        for index, record in enumerate(chunk.records):
            try:
                task = read_task(self._app, index, record, self._limits, trusted=trusted)
            except Malformed as error:
                letters[index] = DeadLetter(error.id, MALFORMED, safe_text(error), record)
                continue
            except BaseException as error:  # noqa: BLE001 - nobody thought of it: this record's end
                why = f"it could not be read: {describe(error)}"
                letters[index] = DeadLetter(None, MALFORMED, why, record)
                continue
            if isinstance(task, Skip):
                chunk.counts[Count("", NotRun.SKIPPED, SKIP)] += 1
                continue
            if suspect is not None:
                note_crashes(task, suspect)
            tasks.append(task)
        return tasks, letters

    def _run(self, tasks: list[Task], letters: dict[int, DeadLetter], chunk: ChunkRun) -> None:
        self._session.connect()
        if chunk.suspect is not None:
            tasks = self._suspects.settle(chunk.suspect, tasks, chunk)
        self._letters.write(letters, chunk)
        for group in groups(tasks, self._settings.ordering):
            self._transactions.run(group, chunk)

    def _give_up(self, error: BaseException, tasks: list[Task], chunk: ChunkRun) -> None:
        """Something that nobody thought of, with the database at hand."""
        self._log.error("unexpected", error=describe(error), exc_info=error)
        if chunk.suspect is not None and isinstance(error, psycopg.OperationalError):
            chunk.give_back(tasks)  # the dead worker's backend does not end: look again later
            return
        try:
            for task in tasks:
                self._transactions.fail([task], error, chunk)
        except psycopg.OperationalError as away:
            self._database_away(away, chunk.open(tasks), chunk)

    def _database_away(self, error: BaseException, tasks: Sequence[Task], chunk: ChunkRun) -> None:
        """Fresh requests are told to come again; whose COMMIT may have landed say nothing."""
        self._log.error("database away", error=safe_text(error), requests=len(tasks))
        self._session.drop()
        chunk.database_up = False
        if chunk.suspect is not None:
            chunk.give_back(tasks)
            return
        # A call outside that was started is left to its lease: it may have happened. A waiting row
        # that was claimed stays one: main has it given back when the database answers.
        tasks = [t for t in tasks if t.effect != "external" or t.started is None]
        # Whoever sends messages that a decoder reads does not know us, and won't send them again.
        foreign = self._app.decoders
        chunk.give_back([t for t in tasks if t.claim is not None or t.record[TOPIC] in foreign])
        told = chunk.open(tasks)
        for task in told:
            task.stored = None
            task.started = None
            task.end(Outcome(State.FAILED, DATABASE_UNAVAILABLE, reason="the database is away"))
        now = datetime.now(UTC)
        self._publish([status_of(t, row_of(t, now), now, bump=True) for t in told])
        chunk.settle(told)


def _longest(app: App, default: float) -> float:
    """Seconds of the longest run that any handler allows."""
    own = [h.max_timeout or h.timeout or default for h in app.handlers.values()]
    return max(own, default=default)
