"""The database work of the maintenance process, in a thread of its own.

So the channel, the registration and the health endpoint go on while the database hangs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from structlog.stdlib import BoundLogger

from feedback.contract.counts import AnyCounts
from feedback.contract.states import PARKED, SHUTDOWN
from feedback.errors import OncepoolError, SchemaTooNew
from feedback.journal.migrations import check_schema, migrate
from feedback.journal.result_outbox import add_results
from feedback.journal.rows import DeadLetter
from feedback.operations import requests as operators
from feedback.status.store import StatusWrite
from processing.ipc.channel import ChannelClosed
from processing.ipc.frames import (
    CannotServe,
    DatabaseState,
    Frame,
    MaintenanceReady,
    PartAnswered,
)
from processing.maintenance.claimer import Claimer, UnstartedRecords
from processing.maintenance.connection import ListeningConnection
from processing.maintenance.counters import Counters
from processing.maintenance.database_health import DatabaseHealth
from processing.maintenance.dead_letter_buffer import DeadLetterBuffer
from processing.maintenance.expiry import records_in_doubt, statuses_in_doubt
from processing.maintenance.health import Health
from processing.maintenance.periodic import PeriodicDuties
from processing.maintenance.refusals import refusals
from processing.settings import MaintenanceSettings

WRITE_COUNTERS_EVERY = 2.0
SWEEP, COUNTERS = "sweep", "counters"


class DatabaseLoop:
    """Probes the database, sweeps expired claims, writes counters, tends the waiting queue."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        tell: Callable[[Frame], None],
        publish: Callable[[Sequence[StatusWrite]], None],
        health: Health,
        log: BoundLogger,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._publish = publish
        self._health = health
        self._log = log
        self._schedule = PeriodicDuties(
            {COUNTERS: WRITE_COUNTERS_EVERY, SWEEP: settings.sweep_interval}, time.monotonic()
        )
        # At the start too: an instance that was killed may have left claims.
        self._schedule.hasten(SWEEP, time.monotonic())
        self._letters = DeadLetterBuffer(settings.schema, log)
        self._said_ready = False
        self._schema_checked = False
        self._blocked = False
        """The schema can't be used: nothing but stopping helps."""
        self.queue = Claimer(settings, tell, publish, self.count, self.refuse)
        """What is to be done about due rows; `wake` after it was told something."""
        self._line = ListeningConnection(
            settings.database_url, settings.schema, settings.instance, self.queue.wake
        )
        self._changed = threading.Lock()
        # All below is guarded by _changed.
        self._probe = DatabaseHealth()
        self._counters = Counters()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="database", daemon=True)

    # Called by the thread that takes frames

    def start(self) -> None:
        """Starts the thread; its first try of the database ends in `MaintenanceReady`."""
        self._thread.start()

    def probe(self) -> None:
        """The main process wants to hear when the database can be reached."""
        with self._changed:
            self._probe.ask()
        self.wake()

    def count(self, counts: AnyCounts) -> None:
        """Adds to the counters."""
        with self._changed:
            self._counters.add(counts, time.time())

    def keep(self, part: int, letters: Sequence[DeadLetter]) -> None:
        """Keeps dead letters as soon as the database can be reached; then says so."""
        if letters:
            self._letters.put(part, letters)
            self.wake()

    def refuse(self, part: UnstartedRecords) -> None:
        """Answers for records that will not start here: `failed/<code>`, or a dead letter."""
        now, ttl = datetime.now(UTC), self._settings.status_ttl
        code = SHUTDOWN if part.code == PARKED else part.code
        refused = refusals(part.records, code, now, ttl, part.decoded)
        self._publish(refused.writes)
        self.count(refused.counts)
        self._tell(PartAnswered(part.number, len(part.records) - len(refused.letters)))
        # Answered once they are in the journal: until then the main process keeps them, too.
        self.keep(part.number, refused.letters)

    def park(self, part: UnstartedRecords) -> None:
        """Has records wait for another instance; refuses them where the database is away."""
        self.queue.park(part)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        self._line.wake()

    def unhang(self) -> None:
        """Cuts the connection of a statement that takes too long; call it now and then."""
        if self._line.cut(self._settings.hung_after):
            self._log.warning("the database does not answer: the connection was cut")

    def stop(self) -> None:
        """Writes the last counters and ends; `join` waits for it."""
        with self._changed:
            self._stopping = True
        self.queue.stop()
        self.wake()

    def join(self, timeout: float) -> None:
        """Waits until the thread has ended."""
        self._thread.join(timeout)

    # The thread

    def _run(self) -> None:
        with contextlib.suppress(ChannelClosed):  # main is gone, and with it this process
            while self._wait():
                now = time.monotonic()
                with self._changed:
                    try_now = self._probe.pause(now) == 0
                if try_now:
                    self._attempt(self._reach)
                else:
                    if self._letters:
                        self._attempt(self._write_letters)
                    if self._probe.up and not self._blocked and self.queue.pause(now) == 0.0:
                        self._attempt(self._tend_queue)
                    for duty in self._schedule.take(now):
                        if self._probe.up:  # the duty before this one may have found it away
                            self._attempt(self._sweep if duty == SWEEP else self._write_counters)
            if self._line.connected and not self._blocked:
                self._attempt(self._finish_queue)
            self.queue.refuse_parts()
            if self._letters and self._line.connected and not self._blocked:
                self._attempt(self._write_letters)
            self._letters.name_lost()
            if self._line.connected and not self._blocked:
                self._attempt(self._write_counters)
        self._line.close()

    def _wait(self) -> bool:
        """Waits until something is due; False when it is time to stop."""
        while True:
            now = time.monotonic()
            with self._changed:
                if self._stopping:
                    return False
                pauses = [self._probe.pause(now)]
                up = self._probe.up and not self._blocked
            if up:
                pauses += [0.0 if self._letters else self._schedule.pause(now)]
                pauses += [self.queue.pause(now)]
            elif self._said_ready:  # before that nobody has looked whether the database is there
                self.queue.refuse_parts()
            known = [pause for pause in pauses if pause is not None]
            if known and min(known) <= 0:
                return True
            # An end of the connection is heard, too.
            if self._line.wait(min(known, default=None), listening=up):
                self._attempt(self._line.hear)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Does one piece of work; whatever goes wrong counts as the database being away."""
        try:
            with self._line.busy():
                work()
        except (psycopg.Error, OSError) as error:
            self._failed(" ".join(str(error).split()) or type(error).__name__)
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001 - housekeeping goes on after a duty's bug
            self._log.exception("database duty failed")
            self._failed(repr(error))

    def _reach(self) -> None:
        connection = self._line.open()
        (standby,) = connection.execute("SELECT pg_is_in_recovery()").fetchone() or (False,)
        if standby:
            raise psycopg.OperationalError("this server is a read-only standby")
        if not self._schema_checked:
            self._check_schema(connection)
        with self._changed:
            news = self._probe.succeeded()
        self._health.database(up=True, detail="answers")
        if news and self._said_ready and not self._blocked:
            self._tell(DatabaseState(up=True, detail="answers"))
        self._say_ready("ok", "")

    def _tend_queue(self) -> None:
        self.queue.work(self._line.open())

    def _finish_queue(self) -> None:
        self.queue.finish(self._line.open())

    def _check_schema(self, connection: psycopg.Connection[Any]) -> None:
        schema = self._settings.schema
        try:
            if self._settings.migrate:
                self._line.take_your_time()
                applied = migrate(self._settings.database_url, schema)
                self._log.info("journal migrated", schema=schema, applied=applied)
            check_schema(connection, schema)
        except psycopg.OperationalError:
            raise
        except (OncepoolError, psycopg.Error) as error:
            self._blocked = True
            verdict = "too_new" if isinstance(error, SchemaTooNew) else "missing"
            detail = str(error).strip()
            if self._said_ready:
                self._tell(CannotServe(detail))
            self._say_ready(verdict, detail)
        self._schema_checked = True

    def _sweep(self) -> None:
        connection, schema = self._line.open(), self._settings.schema
        with connection.transaction(), connection.cursor() as cursor:
            rows = operators.sweep_expired_claims(connection, schema=schema)
            if self._settings.results_topic:
                add_results(cursor, schema, records_in_doubt(rows))
        if not rows:
            return
        for row in rows:
            self._log.warning(
                "claim expired: in doubt", request_id=row.id, type=row.type, run=row.run
            )
        self._publish(statuses_in_doubt(rows, self._settings.status_ttl))
        self.count(Counter((row.type, "in_doubt", row.code) for row in rows))

    def _write_letters(self) -> None:
        while self._letters:
            parts, counts = self._letters.write(self._line.open())
            self.count(counts)
            for part, n in parts.items():
                self._tell(PartAnswered(part, n))

    def _write_counters(self) -> None:
        with self._changed:
            counts = self._counters.take()
        if not counts:
            return
        try:
            operators.add_counters(self._line.open(), counts, schema=self._settings.schema)
        except BaseException:
            with self._changed:
                self._counters.restore(counts)
            raise

    def _failed(self, detail: str) -> None:
        self._line.close()
        with self._changed:
            news = self._probe.failed(time.monotonic())
        self._health.database(up=False, detail=detail)
        if news and self._said_ready:
            self._log.warning("database away", detail=detail)
            self._tell(DatabaseState(up=False, detail=detail))
        self._say_ready("unreachable", detail)

    def _say_ready(self, schema: str, detail: str) -> None:
        if not self._said_ready:
            self._said_ready = True
            self._tell(MaintenanceReady(schema, detail))
