"""The database work of the maintenance process, in a thread of its own.

So the channel, the registration and the health endpoints go on while the database hangs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from structlog.stdlib import BoundLogger

from feedback.contract.counts import AnyCounts, Count
from feedback.errors import OncepoolError, SchemaTooNew
from feedback.journal.housekeeping import (
    add_counters,
    in_doubt_records,
    in_doubt_statuses,
    sweep_expired_claims,
)
from feedback.journal.migrations import check_schema, migrate
from feedback.journal.result_outbox import add_results
from feedback.status.store import StatusWrite
from processing.ipc.channel import ChannelClosed
from processing.ipc.frames import CannotServe, DatabaseState, Frame, MaintenanceReady
from processing.maintenance.claimer import Claimer
from processing.maintenance.connection import ListeningConnection
from processing.maintenance.counters import Counters
from processing.maintenance.database_health import DatabaseHealth
from processing.maintenance.health import Health
from processing.maintenance.periodic import PeriodicDuties
from processing.maintenance.reporting import Reporting
from processing.maintenance.unstarted import UnstartedRecords
from processing.maintenance.unstarted_handling import UnstartedHandling
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
        self._health = health
        self._log = log
        self._duties = PeriodicDuties(
            {COUNTERS: WRITE_COUNTERS_EVERY, SWEEP: settings.sweep_interval}, time.monotonic()
        )
        # At the start too: an instance that was killed may have left claims.
        self._duties.hasten(SWEEP, time.monotonic())
        self._said_ready = False
        self._schema_checked = False
        self._blocked = False
        """The schema can't be used: nothing but stopping helps."""
        self._counters = Counters()
        self._reporting = Reporting(tell, publish, self.count, settings.status_ttl)
        self._claimer = Claimer(settings, self._reporting)
        self._unstarted = UnstartedHandling(settings, self._reporting, log)
        self._connection = ListeningConnection(
            settings.database_url, settings.schema, settings.instance, self._claimer.woken
        )
        self._changed = threading.Lock()
        # Both below are guarded by _changed.
        self._state = DatabaseHealth()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="database", daemon=True)

    # Called by the thread that takes frames

    def start(self) -> None:
        """Starts the thread; its first try of the database ends in `MaintenanceReady`."""
        self._thread.start()

    def probe(self) -> None:
        """The main process wants to hear when the database can be reached."""
        with self._changed:
            self._state.ask()
        self.wake()

    def count(self, counts: AnyCounts) -> None:
        """Adds to the counters."""
        self._counters.add(counts, time.time())

    def on_queue_frame(self, frame: Frame) -> None:
        """What the main process says of the waiting queue."""
        self._claimer.on_frame(frame)
        self.wake()

    def refuse(self, part: UnstartedRecords) -> None:
        """Answers for records that will not start here: `failed/<code>`, or a dead letter."""
        self._unstarted.refuse(part)
        self.wake()

    def park(self, part: UnstartedRecords) -> None:
        """Has records wait for another instance; refuses them where the database is away."""
        self._unstarted.park(part)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        self._connection.wake()

    def cut_if_hung(self) -> None:
        """Cuts the connection of a statement that takes too long; call it now and then."""
        if self._connection.cut(self._settings.hung_after):
            self._log.warning("the database does not answer: the connection was cut")

    def stop(self) -> None:
        """Writes the last counters and ends; `join` waits for it."""
        with self._changed:
            self._stopping = True
        self._claimer.stop()
        self.wake()

    def join(self, timeout: float) -> None:
        """Waits until the thread has ended."""
        self._thread.join(timeout)

    # The thread

    def _run(self) -> None:
        with contextlib.suppress(ChannelClosed):  # main is gone, and with it this process
            while self._wait():
                self._turn()
            self._finish()
        self._connection.close()

    def _turn(self) -> None:
        now = time.monotonic()
        with self._changed:
            try_now = self._state.pause(now) == 0
        if try_now:
            self._attempt(self._reach)
            return
        self._when_up(self._tend_unstarted, self._unstarted.pending)
        self._when_up(self._tend_queue, self._claimer.pause(now) == 0.0)
        for duty in self._duties.take(now):
            self._when_up(self._sweep if duty == SWEEP else self._write_counters)

    def _finish(self) -> None:
        """What must not be left at the end, as far as the database can be reached."""
        if self._usable:
            self._attempt(self._finish_queue)
        self._unstarted.refuse_waiting()
        if self._usable:
            self._attempt(self._write_letters)
        self._unstarted.name_lost_letters()
        if self._usable:
            self._attempt(self._write_counters)

    @property
    def _usable(self) -> bool:
        return self._connection.connected and not self._blocked

    def _when_up(self, work: Callable[[], None], wanted: bool = True) -> None:
        # The work before this one may have found it away.
        if wanted and self._state.up and not self._blocked:
            self._attempt(work)

    def _wait(self) -> bool:
        """Waits until something is due; False when it is time to stop."""
        while True:
            now = time.monotonic()
            with self._changed:
                if self._stopping:
                    return False
                pauses = [self._state.pause(now)]
                up = self._state.up and not self._blocked
            if up:
                pauses += [0.0 if self._unstarted.pending else self._duties.pause(now)]
                pauses += [self._claimer.pause(now)]
            elif self._said_ready:  # before that nobody has looked whether the database is there
                self._unstarted.refuse_waiting()
            known = [pause for pause in pauses if pause is not None]
            if known and min(known) <= 0:
                return True
            # An end of the connection is heard, too.
            if self._connection.wait(min(known, default=None), listening=up):
                self._attempt(self._connection.hear)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Does one piece of work; whatever goes wrong counts as the database being away."""
        try:
            with self._connection.busy():
                work()
        except (psycopg.Error, OSError) as error:
            self._failed(" ".join(str(error).split()) or type(error).__name__)
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001 - housekeeping goes on after a duty's bug
            self._log.exception("database duty failed")
            self._failed(repr(error))

    def _reach(self) -> None:
        connection = self._connection.open()
        (standby,) = connection.execute("SELECT pg_is_in_recovery()").fetchone() or (False,)
        if standby:
            raise psycopg.OperationalError("this server is a read-only standby")
        if not self._schema_checked:
            self._check_schema(connection)
        with self._changed:
            news = self._state.succeeded()
        self._health.database(up=True, detail="answers")
        if news and self._said_ready and not self._blocked:
            self._reporting.tell(DatabaseState(up=True, detail="answers"))
        self._say_ready("ok", "")

    def _check_schema(self, connection: psycopg.Connection[Any]) -> None:
        schema = self._settings.schema
        try:
            if self._settings.migrate:
                self._connection.take_your_time()
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
                self._reporting.tell(CannotServe(detail))
            self._say_ready(verdict, detail)
        self._schema_checked = True

    # Duties

    def _tend_unstarted(self) -> None:
        self._write_letters()
        self._unstarted.park_waiting(self._connection.open())

    def _tend_queue(self) -> None:
        connection = self._connection.open()
        self._claimer.keep_claims(connection)
        self._claimer.claim(connection)

    def _finish_queue(self) -> None:
        connection = self._connection.open()
        self._claimer.keep_claims(connection)
        self._unstarted.park_waiting(connection)

    def _write_letters(self) -> None:
        self._unstarted.write_letters(self._connection.open())

    def _sweep(self) -> None:
        connection, schema = self._connection.open(), self._settings.schema
        with connection.transaction(), connection.cursor() as cursor:
            rows = sweep_expired_claims(connection, schema=schema)
            if self._settings.results_topic:
                add_results(cursor, schema, in_doubt_records(rows))
        if not rows:
            return
        for row in rows:
            self._log.warning(
                "claim expired: in doubt", request_id=row.id, type=row.type, run=row.run
            )
        self._reporting.publish(in_doubt_statuses(rows, self._settings.status_ttl))
        self.count(Counter(Count(row.type, row.state, row.code) for row in rows))

    def _write_counters(self) -> None:
        counts = self._counters.take()
        if not counts:
            return
        try:
            add_counters(self._connection.open(), counts, schema=self._settings.schema)
        except BaseException:
            self._counters.restore(counts)
            raise

    def _failed(self, detail: str) -> None:
        self._connection.close()
        with self._changed:
            news = self._state.failed(time.monotonic())
        self._health.database(up=False, detail=detail)
        if news and self._said_ready:
            self._log.warning("database away", detail=detail)
            self._reporting.tell(DatabaseState(up=False, detail=detail))
        self._say_ready("unreachable", detail)

    def _say_ready(self, schema: str, detail: str) -> None:
        if not self._said_ready:
            self._said_ready = True
            self._reporting.tell(MaintenanceReady(schema, detail))
