"""The database work of the maintenance process, in a thread of its own.

So the channel, the registration and the health endpoints go on while the database hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from feedback.contract.counts import AnyCounts
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.database_errors import Outage, is_unfit, outage_of
from feedback.journal.housekeeping import is_locked
from feedback.journal.open_rows import open_rows
from feedback.metrics.names import COUNTED
from feedback.postgres import one_line
from feedback.status.status import StatusWrite
from processing.ipc.channel import ChannelClosed
from processing.ipc.frames import DeclareApp, EndCalls, Frame, WantDoubts
from processing.logs import BoundLogger
from processing.maintenance.claimer import Claimer
from processing.maintenance.connection import ListeningConnection
from processing.maintenance.counters import Counters
from processing.maintenance.database_probe import DatabaseProbe
from processing.maintenance.dead_backends import DeadBackends
from processing.maintenance.doubts import Doubts
from processing.maintenance.health import Health
from processing.maintenance.instance_metrics import InstanceMetrics
from processing.maintenance.lost_calls import LostCalls
from processing.maintenance.periodic import PeriodicDuties
from processing.maintenance.reporting import Reporting
from processing.maintenance.ticking import Ticking
from processing.maintenance.unstarted import UnstartedRecords
from processing.maintenance.unstarted_handling import UnstartedHandling
from processing.maintenance.work_rests import WorkRests, worth_a_line
from processing.maintenance.works import CLAIM, RENEW, Work, works_of
from processing.settings import MaintenanceSettings

WRITE_COUNTERS_EVERY = 2.0
ASK_METRICS_EVERY = 1.0
"""Seconds between two questions whether figures of the journal are wanted."""
_HELD_UP = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
SWEEP, COUNTERS, METRICS = "sweep", "counters", "metrics"
_KEEPING = frozenset({RENEW, CLAIM, SWEEP})
"""Where one of these fails, leases may not have been renewed anywhere."""


class DatabaseLoop:
    """Probes the database, sweeps expired claims, writes counters, tends the waiting queue."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        tell: Callable[[Frame], None],
        publish: Callable[[Sequence[StatusWrite]], None],
        health: Health,
        log: BoundLogger,
        metrics: InstanceMetrics | None = None,
    ) -> None:
        self._settings = settings
        self._log = log
        self._metrics = metrics
        intervals = {COUNTERS: WRITE_COUNTERS_EVERY, SWEEP: settings.sweep_interval}
        if metrics is not None:
            intervals[METRICS] = ASK_METRICS_EVERY
        self._duties = PeriodicDuties(intervals, time.monotonic())
        # At the start too: an instance that was killed may have left claims.
        self._duties.hasten(SWEEP, time.monotonic())
        self._counters = Counters()
        self._reporting = Reporting(tell, publish, self.count, settings.status_ttl)
        dead = DeadBackends(log)
        self._claimer = Claimer(settings, self._reporting, log, dead)
        self._unstarted = UnstartedHandling(settings, self._reporting, log, dead)
        self._lost_calls = LostCalls(settings, self._reporting, log, dead)
        self._ticking = Ticking(settings, self._reporting, log)
        self._doubts = Doubts(settings, self._reporting, log)
        self._connection = ListeningConnection(
            settings.database_url, settings.schema, settings.instance, self._claimer.woken
        )
        self._rests = WorkRests(urgent={RENEW})
        self._renewals = self._claimer.renewals
        self._probe = DatabaseProbe(settings, self._connection, self._reporting, health, log)
        self._commits: tuple[Commits[Any], ...] = (
            self._claimer.commits, self._unstarted.commits, self._lost_calls.commits,
            self._ticking.commits, self._counters.commits,
        )  # fmt: skip
        self._works = works_of(
            self._claimer, self._unstarted, self._lost_calls, self._ticking, self._doubts
        )
        self._counting = Work(COUNTERS, self._write_counters)
        self._duty_of = {
            SWEEP: Work(SWEEP, self._sweep), COUNTERS: self._counting,
            METRICS: Work(METRICS, self._look_at_journal),
        }  # fmt: skip
        self._hearing = Work("hear", lambda _: self._connection.hear())
        self._stopping = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="database", daemon=True)

    # Called by the thread that takes frames

    def start(self) -> None:
        """Starts the thread; its first try of the database ends in `MaintenanceReady`."""
        self._thread.start()

    def probe(self) -> None:
        """The main process wants to hear when the database can be reached."""
        self._probe.ask()
        self.wake()

    def count(self, counts: AnyCounts) -> None:
        """Adds to the counters."""
        self._counters.add(counts, time.time())
        if self._metrics is not None:
            self._metrics.count(counts)

    def on_queue_frame(self, frame: Frame) -> None:
        """What the main process says of the waiting queue, and of what is in doubt."""
        if isinstance(frame, WantDoubts):
            self._doubts.want(frame)
        else:
            self._claimer.on_frame(frame)
        self.wake()

    def leave_to_others(self, types: frozenset[str]) -> None:
        """Rows of these types are not claimed: only other instances have handlers for them."""
        self._claimer.leave_to_others(types)

    def refuse(self, part: UnstartedRecords) -> None:
        """Answers for records that will not start here: `failed/<code>`, or a dead letter."""
        self._unstarted.refuse(part)
        self.wake()

    def park(self, part: UnstartedRecords) -> None:
        """Has records wait for another instance; refuses them where the database is away."""
        self._unstarted.park(part)
        self.wake()

    def end_calls(self, frame: EndCalls) -> None:
        """Calls of workers that are gone are in doubt."""
        self._lost_calls.gone(frame)
        self.wake()

    def declare(self, app: DeclareApp) -> None:
        """What the app is like."""
        self._claimer.learn(app.types)
        self._probe.needs(app.uses)
        self._ticking.declare(app.schedules)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        self._connection.wake()

    def cut_if_hung(self) -> None:
        """Cuts the connection of a statement that takes too long; call it now and then.

        Raises RuntimeError where the thread has ended: without it this process only seems alive.
        """
        if self._failed:
            raise RuntimeError("the thread of the database has ended")
        if self._connection.cut(self._settings.hung_after):
            self._log.warning("the database does not answer: the connection was cut")

    def stop(self) -> None:
        """Writes the last counters and ends; `join` waits for it."""
        self._stopping.set()
        self._claimer.stop()
        self.wake()

    def join(self, timeout: float) -> bool:
        """Waits until the thread has ended; False when time runs out."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # The thread

    def _run(self) -> None:
        try:
            while self._wait():
                self._turn()
            self._finish()
        except ChannelClosed:  # main is gone, and with it this process
            pass
        except Exception:  # noqa: BLE001 - the next process does better, or says so again
            self._log.exception("the database's thread has failed")
            self._failed = True
        self._connection.close()

    def _turn(self) -> None:
        now = time.monotonic()
        if self._probe.pause(now) == 0:
            was_up, tried = self._probe.up, self._probe.said_ready
            self._probe.attempt()
            if not was_up:
                self._rests.clear()
            if tried and not was_up and self._probe.up:
                self._renewals.spare(time.monotonic())
            return
        # Some of each a turn: a backlog has no end, and leases have to be renewed.
        for work in self._works:
            if work.pause(now) == 0.0:
                self._when_up(work)
        for duty in self._duties.take(now):
            self._when_up(self._duty_of[duty])

    def _finish(self) -> None:
        """What must not be left at the end, as far as the database can be reached."""
        self._last(self._works.renewal)
        self._last(self._works.returns)
        self._unstarted.look_again()
        self._all_of(self._works.parking, lambda: self._unstarted.parts)
        self._last(self._works.calls)
        self._claimer.leave_to_leases()
        self._lost_calls.leave_to_leases()
        self._unstarted.leave_suspects()
        self._unstarted.refuse_waiting(ending=True)
        self._all_of(self._works.letters, lambda: self._unstarted.letters)
        self._unstarted.name_lost_letters()
        self._last(self._counting)

    def _last(self, work: Work) -> bool:
        """Twice where it fails: the connection may be all that was lost."""
        return any(self._reached() and self._attempt(work) for _ in range(2))

    def _all_of(self, work: Work, left: Callable[[], bool]) -> None:
        while left() and self._last(work):
            pass

    def _reached(self) -> bool:
        """Whether there is a connection: another one, unless the last try found no database."""
        if not self._connection.connected and self._probe.up:
            self._probe.attempt()
        return self._connection.connected and not self._probe.blocked

    def _when_up(self, work: Work) -> None:
        # The work before this one may have failed.
        if self._probe.sure and not self._rests.pause(work.name, time.monotonic()):
            self._attempt(work)

    def _wait(self) -> bool:
        """Waits until something is due; False when it is time to stop."""
        while True:
            now = time.monotonic()
            if self._stopping.is_set():
                return False
            pauses = [self._probe.pause(now)]
            up = self._probe.up
            if up:
                pauses += self._pauses(now)
            elif (
                self._probe.said_ready
            ):  # before that nobody has looked whether the database is there
                self._unstarted.refuse_waiting()
            known = [pause for pause in pauses if pause is not None]
            if known and min(known) <= 0:
                return True
            # An end of the connection is heard, too.
            if self._connection.wait(min(known, default=None), listening=up):
                self._attempt(self._hearing)

    def _pauses(self, now: float) -> list[float]:
        """Seconds until each work that there is, while the database is there."""
        known = [(work.pause(now), self._rests.pause(work.name, now)) for work in self._works]
        return [
            self._duties.pause(now),
            *(max(due, rest) for due, rest in known if due is not None),
        ]

    def _attempt(self, work: Work) -> bool:
        """Does one piece of work; True where it went well.

        Only a try of the database says whether that is away.
        """
        try:
            with self._connection.busy():
                work.do(self._connection.open())
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001 - housekeeping goes on after a duty's bug
            self._failed_at(work, error)
            return False
        self._rests.succeeded(work.name)
        return True

    def _failed_at(self, work: Work, error: Exception) -> None:
        outage, now = self._outage_of(error), time.monotonic()
        self._connection.close()  # nobody knows what it is in the middle of
        if outage is not None:
            self._probe.doubt()
        if outage is not Outage.RECONNECT:
            self._rests.failed(work.name, now)
            if work.name in _KEEPING:
                self._renewals.spare(now, self._rests.pause(work.name, now))
        elif worth_a_line(lost := self._rests.lost(work.name, now)):
            self._log.warning(
                "database work loses its connection each time: it rests for a while, and the rest"
                " goes on", work=work.name, losses=lost, error=one_line(error),
            )  # fmt: skip
        if isinstance(error, _HELD_UP):
            self._log.warning(
                "database work was cut off: somebody holds a lock for long, or it takes too long",
                work=work.name, error=str(error),
            )  # fmt: skip
        elif outage is None or is_unfit(error):
            self._log.exception("database work failed", work=work.name)

    def _outage_of(self, error: Exception) -> Outage | None:
        if not isinstance(error, (psycopg.Error, OSError)):
            return None
        return outage_of(error, connected=self._connection.usable, journals=True)

    # Duties

    def _sweep(self, connection: Connection) -> None:
        now = time.monotonic()
        if is_locked(connection, schema=self._settings.schema):
            # Whoever waits there to renew leases comes after whoever has it locked.
            self._renewals.spare(now, self._settings.sweep_interval)
        elif not self._renewals.sparing(now) and self._lost_calls.sweep(connection):
            self._duties.hasten(SWEEP, time.monotonic())

    def _look_at_journal(self, connection: Connection) -> None:
        if self._metrics is not None and self._metrics.wants_journal:
            self._metrics.journal(open_rows(connection, schema=self._settings.schema, most=COUNTED))

    def _write_counters(self, connection: Connection) -> None:
        # What became of transactions whose COMMIT got no answer is told first.
        for commits in self._commits:
            if commits.unclear:
                commits.settle(connection)
        if self._counters:
            self._counters.write(connection, self._settings.schema, self._log)
