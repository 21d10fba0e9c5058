"""Runs the pool's decisions: processes, sockets and signals, in the main process's one thread.

The loop calls `step` again and again; nothing here blocks for longer than the time it is given.
Sockets and sentinels of all children and the loop's own wake-up stand in one selector.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from feedback.contract.record import Record
from feedback.contract.states import DATABASE_UNAVAILABLE
from processing.ipc.channel import WrongFrame
from processing.ipc.frames import (
    CancelAsked,
    CannotServe,
    Connected,
    DatabaseState,
    DueRows,
    Frame,
    LeasesRenewed,
    LimitsFound,
    MaintenanceReady,
    Report,
    Returned,
    WorkerReady,
)
from processing.ipc.progress import Running
from processing.logs import BoundLogger
from processing.pool.actions import Action, NoWorkerStarts, Send, Signal, Spawn, Tell
from processing.pool.at_work import AtWork
from processing.pool.backlog import Backlog
from processing.pool.handover import Handover
from processing.pool.maintenance_link import MaintenanceLink
from processing.pool.pool import Pool
from processing.pool.pool_log import PoolLog
from processing.pool.pool_stats import backlogs_in, is_saturated, is_supplied, stats_of, waiting_in
from processing.pool.running import facts_of
from processing.pool.stats import PoolStats
from processing.pool.worker_processes import WorkerProcesses
from processing.settings import MaintenanceSettings, PoolSettings, WorkerSettings

TICK: Final = 0.05
"""Seconds between two looks at the workers' slots."""
COUNTS_EVERY: Final = 1.0
"""Seconds between two hand-overs of the counters to the maintenance process."""
LEFT_NAMED: Final = 20  # requests left in hand at the end that the log names


class Supervisor:
    """The workers and the maintenance process of one instance."""

    def __init__(
        self,
        pool: PoolSettings,
        worker: WorkerSettings,
        maintenance: MaintenanceSettings,
        log: BoundLogger,
    ) -> None:
        self._pool = Pool(pool)
        self._log = log
        self._pool_log = PoolLog(log)
        self._selector = selectors.DefaultSelector()
        self._processes = WorkerProcesses(
            asdict(worker), self._selector, on_frame=self._on_worker, on_end=self._on_worker_end,
            log=log,
        )  # fmt: skip
        self._at_work = AtWork(self._pool, self._processes)
        self._next_tick = self._next_counts = 0.0
        self._database_was_up = True  # as the log has it
        self._refusing: str | None = None
        self._working = False
        done = self._pool.departures.done
        self.maintenance = MaintenanceLink(asdict(maintenance), self._selector, log, done)
        self._handover = Handover(self._pool, self.maintenance, log)
        self.types: list[str] = []
        """Request types of the app, as the last worker that started told them."""
        self.fatal: str | None = None
        """Why the service has to end, once it has to."""
        self.killed = 0
        """Processes that had to be killed at the end of the grace."""

    # What the loop sees

    @property
    def in_hand(self) -> int:
        """Requests that are committed and not finished."""
        return self._pool.in_hand + self._handover.count

    @property
    def in_hand_bytes(self) -> int:
        """The same in bytes."""
        return self._pool.in_hand_bytes + self._handover.size

    @property
    def pending(self) -> bool:
        """Records wait for a worker."""
        return waiting_in(self._pool) > 0

    @property
    def saturated(self) -> bool:
        """Nothing that comes could start before a worker reports, which ends a `step`."""
        return is_saturated(self._pool)

    @property
    def supplied(self) -> bool:
        """Each worker has its next chunk already, so what comes goes behind that."""
        return is_supplied(self._pool)

    @property
    def held_back(self) -> int:
        """Records that can't just share the next chunk."""
        return self._pool.lanes.held_back

    @property
    def kept_back(self) -> int:
        """Records in hand that are tried again after a pause, and what waits behind them."""
        return self._pool.lanes.kept_back.now.records + self.maintenance.standing

    def backlogs(self) -> dict[tuple[str, int], Backlog]:
        """What is held back by partition, and how long that is expected to take. Looks at each."""
        return backlogs_in(self._pool)

    @property
    def database_up(self) -> bool:
        """Whether requests can be journaled; while they can't, intake stops."""
        return self._pool.database_up

    @property
    def workers_start(self) -> bool:
        """False while nobody is there and the last worker that was started failed."""
        return not self._pool.crew.none_starts

    @property
    def alive(self) -> int:
        """Worker processes that have not ended."""
        return len(self._processes)

    def running_requests(self) -> list[dict[str, Any]]:
        """What each worker runs right now."""
        return self._at_work.requests()

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Calls `callback` from `step` whenever a descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, lambda _mask: callback())

    def start_maintenance(self) -> None:
        """Sets `maintenance.ready` in a later step."""
        self.maintenance.start()

    def start_workers(self) -> None:
        """Starts the workers in the steps that follow."""
        self._pool.database(up=self.maintenance.database_up)
        self._database_was_up, self._working = self._pool.database_up, True

    def submit(self, records: Sequence[Record], size: int | None = None) -> None:
        """Takes committed records, each partition's in order; `size`: bytes; None: count them."""
        self._pool.submit(records, size)

    def stats(self) -> PoolStats:
        """A frozen look at the pool."""
        return stats_of(self._pool)

    def take_departed(self) -> tuple[list[Record], list[Record]]:
        """What is done or answered for, and what was given up, since it was asked last."""
        return self._handover.take_departed()

    def let_go(self, places: Mapping[tuple[str, int], int]) -> None:
        """As `Pool.let_go`; none: no more."""
        self._act(self._pool.let_go(places))

    @property
    def letting_go(self) -> bool:
        """Whether workers have records of the partitions that are let go."""
        return self._pool.departures.has_started(self._pool.crew.chunks)

    def step(self, timeout: float) -> None:
        """Takes what has arrived within `timeout` seconds, then acts on it."""
        for key, mask in self._selector.select(timeout):
            key.data(mask)
        now = time.monotonic()
        self._follow_maintenance(now)
        if now >= self._next_tick:
            self._next_tick = now + TICK
            self._processes.reap()
            self._act(self._pool.tick(self._at_work.slots, now, self._at_work.seats))
        if self._refusing is not None:
            self._handover.refuse_unstarted(self._refusing)
        elif self._pool.database_up and self._pool.may_exceed(now):
            self._handover.park_excess(now)
        if self._working:
            self._act(self._pool.plan(now))
            self._act(self._pool.ask(now))

    # Shutdown, in this order

    def stop_claims(self) -> None:
        """From now on no rows of the waiting queue are claimed, and none started."""
        self._act(self._pool.queue.stop_claims())

    def refuse_unstarted(self, code: str) -> None:
        """From now on what has not started waits for another instance instead of being run.

        Where the journal can't be written it is answered `failed/<code>`.
        """
        self._refusing = code
        self._act(self._pool.stop())

    def terminate(self) -> None:
        """Asks what still runs to give up, again and again until it does."""
        self._act(self._pool.terminate(self._at_work.slots, time.monotonic()))

    def kill(self, why: str = "the grace is over") -> None:
        """Kills what is left."""
        for number in self._processes.numbers:
            self._act([Signal(number, signal.SIGKILL, why)])
            self.killed += 1

    def give_up(self) -> list[dict[str, Any]]:
        """Nothing more will be done: names some of what is in hand."""
        records = [*self._handover.records, *self._pool.take_unstarted()]
        records += [record for record, _ in self._pool.take_suspects()]
        return [facts_of(record) for record in records[:LEFT_NAMED]]

    def close(self, timeout: float) -> None:
        """Ends the maintenance process, after it has done what it was given; kills workers."""
        self._processes.close(timeout)
        self._handover.tell(self.types)
        self.killed += not self.maintenance.close(timeout)
        self._handover.tell_parked()
        self._selector.close()

    # Actions

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(number, frame):
                    self._processes.send(number, frame)
                case Spawn(number):
                    self._spawn(number)
                case Signal():
                    self._signal(action)
                case NoWorkerStarts(message):
                    self.fatal = self.fatal or message
                case Tell(frame):
                    self.maintenance.send(frame)
                case _:
                    self._pool_log.tell(action)

    def _signal(self, action: Signal) -> None:
        if not self._processes.still(action):
            return  # it has ended since the look
        self._pool_log.signalled(action, self._at_work)
        self._processes.signal(action.worker, action.number)

    def _spawn(self, number: int) -> None:
        try:
            self._processes.spawn(number)
        except OSError as error:
            # Too many processes or descriptors, no memory: that may pass, and the others run on.
            self._log.error("a worker could not be started", worker=number, error=str(error))
            self._pool.refused(number, str(error), time.monotonic())

    # Workers

    def _on_worker(self, number: int, frame: Frame) -> None:
        match frame:
            case Connected(backend):
                self._pool.crew.connected(number, backend)
            case WorkerReady(types, at_once, concurrency=calls, checked=checked):
                self._log.info("worker ready", worker=number, pid=self._processes.pid(number))
                self.types = types
                self.maintenance.learn(frame)
                self._pool.app(types, at_once, calls, checked)
                self._act(self._pool.ready(number))
            case Returned():
                self._pool.returned(number, frame)
            case Report():
                self._act(self._pool.report(number, frame))
                if not frame.database_up:
                    self._pool_log.connection_lost(number)
            case CannotServe(reason):
                if not self._pool.crew.respawn.started_once:
                    # Told once, whole, by who ends the service: all workers say the same.
                    self.fatal = self.fatal or reason
                else:
                    self._log.error("worker could not start", worker=number, reason=reason)
            case _:
                raise WrongFrame(f"a worker does not say {type(frame).__name__}")

    def _on_worker_end(self, number: int, cause: str, running: Running | None) -> None:
        self._act(self._pool.died(number, cause, running, time.monotonic()))
        self._pool_log.gone(number)

    # The maintenance process

    def _follow_maintenance(self, now: float) -> None:
        probing = self._pool.probing or not self._pool.database_up
        for event in self.maintenance.step(now, probing=probing):
            self._on_maintenance(event, now)
        self.fatal = self.fatal or self.maintenance.fatal
        if self._pool.database_up != self._database_was_up:
            self._note_database()
        if not self._pool.database_up:
            self._handover.refuse_unstarted(DATABASE_UNAVAILABLE)
        if now >= self._next_counts:
            self._next_counts = now + COUNTS_EVERY
            self._handover.tell(self.types)

    def _on_maintenance(self, event: Frame, now: float) -> None:
        match event:
            case MaintenanceReady(schema, detail):
                self._act(self._pool.new_maintenance())
                if self._working and schema == "missing":
                    self._pool_log.journal_missing(detail)
                if self._working or event.ok:
                    self._pool.database(up=event.ok)
            case DatabaseState(up, _, turned_away):
                self._pool.database(up=up, turned_away=turned_away)
            case LeasesRenewed():
                self._pool.queue.leases_renewed()
            case DueRows(order, rows):
                self._pool.claimed(order, rows, now)
            case CancelAsked():
                self._cancel(event, now)
            case LimitsFound():
                self._pool_log.limits(event)
                self._act(self._pool.limit(event))

    def _cancel(self, asked: CancelAsked, now: float) -> None:
        actions = self._pool.cancel(asked, self._at_work.slots, self._at_work.seats, now)
        self._pool_log.cancelling(asked.request_id, asked.reason, actions)
        self._act(actions)

    def _note_database(self) -> None:
        before, self._database_was_up = self._database_was_up, (up := self._pool.database_up)
        self._pool_log.database(before=before, up=up)
        if up and not before:
            self._handover.database_back()
