"""Runs the pool's decisions: processes, sockets and signals, in the main process's one thread.

The loop calls `step` again and again; nothing here blocks for longer than the time it is given.
Sockets and sentinels of all children and the loop's own wake-up stand in one selector.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from structlog.stdlib import BoundLogger

from feedback.contract.record import Record
from feedback.contract.states import DATABASE_UNAVAILABLE
from processing.ipc.channel import ChannelClosed
from processing.ipc.child import Child
from processing.ipc.frames import (
    CancelAsked,
    CannotServe,
    Connected,
    Counts,
    DatabaseState,
    DueRows,
    Frame,
    FromMaintenance,
    LimitsFound,
    MaintenanceReady,
    Report,
    Returned,
    ToWorker,
    WorkerReady,
)
from processing.ipc.progress import Running
from processing.pool.actions import (
    Action,
    Died,
    NoWorkerStarts,
    Replaced,
    Send,
    Signal,
    Spawn,
    Tell,
)
from processing.pool.backlog import Backlog, backlogs_of
from processing.pool.handover import Handover, facts_of
from processing.pool.maintenance_link import MaintenanceLink
from processing.pool.pool import Pool
from processing.pool.running import running_requests
from processing.pool.stats import PoolStats
from processing.settings import MaintenanceSettings, PoolSettings, WorkerSettings

TICK: Final = 0.05
"""Seconds between two looks at the workers' slots."""
COUNTS_EVERY: Final = 1.0
"""Seconds between two hand-overs of the counters to the maintenance process."""
LEFT_NAMED: Final = 20
"""Requests left in hand at the end that are named in the log."""


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
        self._worker_settings = asdict(worker)
        self._log = log
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}
        self._next_tick = 0.0
        self._next_counts = 0.0
        self._database_seen = False
        self._refusing: str | None = None
        self._working = False
        self.maintenance = MaintenanceLink(asdict(maintenance), self._selector, log)
        self._handover = Handover(self._pool, self.maintenance, log)
        self.types: list[str] = []
        """Request types of the app, as the last worker that started told them."""
        self.fatal: str | None = None
        """Why the service has to end, once it has to."""
        self._kills: dict[int, str] = {}
        """Workers that got SIGKILL from here, and why: their deaths are no news."""
        self._limits = LimitsFound(None, {}, [])
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
        return len(self._pool.lanes) > 0

    @property
    def held_back(self) -> int:
        """Records that can't just share the next chunk."""
        return self._pool.lanes.held_back

    def backlogs(self) -> dict[tuple[str, int], Backlog]:
        """The same by partition, and what they are expected to take. Looks at each of them."""
        return backlogs_of(self._pool.lanes.held_back_records(), self._pool.costs)

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
        return len(self._children)

    def stats(self) -> PoolStats:
        """A frozen look at the pool."""
        return self._pool.stats()

    def running_requests(self) -> list[dict[str, Any]]:
        """What each worker runs right now."""
        chunks = {worker.number: worker.chunks for worker in self._pool.workers.values()}
        return running_requests(chunks, self._looks(), time.monotonic(), datetime.now(UTC))

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Calls `callback` from `step` whenever a descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, lambda _mask: callback())

    def start_maintenance(self) -> None:
        """Starts the maintenance process; `maintenance.ready` is set in a later step."""
        self.maintenance.start()

    def start_workers(self) -> None:
        """Starts the workers in the steps that follow."""
        self._pool.database(up=self.maintenance.database_up)
        self._working = True

    def submit(self, records: Sequence[Record]) -> None:
        """Takes records whose offsets are committed, each partition's in order."""
        self._pool.submit(records)

    def step(self, timeout: float) -> None:
        """Takes what has arrived within `timeout` seconds, then acts on it."""
        for key, mask in self._selector.select(timeout):
            key.data(mask)
        now = time.monotonic()
        self._follow_maintenance(now)
        if now >= self._next_tick:
            self._next_tick = now + TICK
            self._reap()
            self._act(self._pool.tick(self._looks(), now))
        if self._refusing is not None:
            self._handover.refuse_unstarted(self._refusing)
        elif self._pool.database_up:
            self._handover.park_excess()
        if self._working:
            self._act(self._pool.plan(now))
            self._act(self._pool.ask(now))

    # Shutdown, in this order

    def stop_claims(self) -> None:
        """From now on no rows of the waiting queue are claimed."""
        self._pool.claiming = False

    def refuse_unstarted(self, code: str) -> None:
        """From now on what has not started waits for another instance instead of being run.

        Where the journal can't be written it is answered `failed/<code>`.
        """
        self._refusing = code
        self._act(self._pool.stop())

    def terminate(self) -> None:
        """Asks what still runs to give up, again and again until it does."""
        self._act(self._pool.terminate(self._looks(), time.monotonic()))

    def kill(self, why: str = "the grace is over") -> None:
        """Kills what is left."""
        for number in list(self._children):
            self._act([Signal(number, signal.SIGKILL, why)])
            self.killed += 1

    def give_up(self) -> list[dict[str, Any]]:
        """Nothing more will be done: names some of what is in hand."""
        held = [record for record, _ in self._pool.take_suspects()]
        records = [*self._handover.records, *self._pool.take_unstarted(), *held]
        return [facts_of(record) for record in records[:LEFT_NAMED]]

    def close(self, timeout: float) -> None:
        """Ends the maintenance process, after it has done what it was given; kills workers."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)
            child.end_group()
            child.wait(timeout)
        self._hand_over_counts()
        self.maintenance.close(timeout)
        if self._handover.parked:
            self._log.info("not started here: parked for other instances, or given back",
                           requests=self._handover.parked)  # fmt: skip
        self._selector.close()

    # Actions

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(number, frame):
                    self._send(number, frame)
                case Spawn(number):
                    self._spawn(number)
                case Signal():
                    self._signal(action)
                case NoWorkerStarts(message):
                    self.fatal = self.fatal or message
                case Tell(frame):
                    self.maintenance.send(frame)
                case Replaced(number, reason):
                    self._log.info("replacing a worker", worker=number, why=reason)
                case Died():
                    self._say_died(action)

    def _signal(self, action: Signal) -> None:
        number, sent, reason = action.worker, action.number, action.reason
        slot = self._children[number].slot
        if action.meant is not None and slot is not None and slot.read() != action.meant:
            return  # it has ended since the look
        if not action.again:
            mine = (row for row in self.running_requests() if row["worker"] == number)
            facts = {"worker": number, **next(mine, {})}
            name = signal.Signals(sent).name
            self._log.warning("signalling a worker", signal=name, why=reason, **facts)
        if sent == signal.SIGKILL:
            self._kills[number] = reason
        self._children[number].signal(sent)

    def _say_died(self, died: Died) -> None:
        facts = {"worker": died.worker, "suspects": died.suspects, **facts_of(died.culprit)}
        killed = self._kills.get(died.worker)
        if killed is None:
            self._log.error("worker died", cause=died.cause, **facts)
        else:
            self._log.warning("worker was killed", why=killed, **facts)

    def _spawn(self, number: int) -> None:
        settings = {**self._worker_settings, "name": f"worker-{number}"}
        try:
            child = Child("processing.worker", settings, with_slot=True)
        except OSError as error:
            # Too many processes or descriptors, no memory: that may pass, and the others run on.
            self._log.error("a worker could not be started", worker=number, error=str(error))
            self._act(self._pool.died(number, str(error), None, time.monotonic()))
            return
        self._children[number] = child
        self._selector.register(
            child.channel, selectors.EVENT_READ, lambda mask: self._on_channel(number, mask)
        )
        if child.sentinel is not None:
            self._selector.register(
                child.sentinel, selectors.EVENT_READ, lambda _mask: self._on_end(number)
            )

    def _send(self, number: int, frame: ToWorker) -> None:
        child = self._children[number]
        try:
            child.channel.send(frame)
        except ChannelClosed:
            return  # it is dead: its sentinel says so, and its chunks come back then
        if child.channel.backlog:
            self._listen(child, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _listen(self, child: Child, events: int) -> None:
        key = self._selector.get_map().get(child.channel)
        if key is not None:
            self._selector.modify(child.channel, events, key.data)

    # Workers

    def _on_channel(self, number: int, mask: int) -> None:
        child = self._children.get(number)
        if child is None:
            return  # it ended in this very round
        try:
            if mask & selectors.EVENT_WRITE:
                child.channel.flush()
                if not child.channel.backlog:
                    self._listen(child, selectors.EVENT_READ)
            if mask & selectors.EVENT_READ:
                for frame in child.channel.receive():
                    self._on_frame(number, frame)
        except ChannelClosed:
            self._selector.unregister(child.channel)

    def _on_frame(self, number: int, frame: Frame) -> None:
        match frame:
            case Connected(backend):
                self._pool.crew.connected(number, backend)
            case WorkerReady(types, at_once, decoded):
                self._log.info("worker ready", worker=number, pid=self._children[number].pid)
                self.types = types
                self.maintenance.decoded = decoded
                self._pool.limit_by_app(at_once)
                self._act(self._pool.ready(number))
            case Returned():
                self._pool.returned(number, frame)
            case Report():
                self._act(self._pool.report(number, frame))
                if not frame.database_up:
                    self._log.warning("a worker lost its connection: the database is probed",
                                      worker=number)  # fmt: skip
            case CannotServe(reason):
                if not self._pool.crew.respawn.started_once:
                    # Told once, whole, by who ends the service: all workers say the same.
                    self.fatal = self.fatal or reason
                else:
                    self._log.error("worker could not start", worker=number, reason=reason)
            case _:
                raise AssertionError(f"worker {number} sent {frame!r}")

    def _on_end(self, number: int) -> None:
        child = self._children[number]
        # Everything it sent counts, before its chunks are judged.
        for frame in child.channel.drain():
            self._on_frame(number, frame)
        child.end_group()
        child.wait(1.0)
        del self._children[number]
        for registered in (child.channel, child.sentinel):
            if registered is not None and registered in self._selector.get_map():
                self._selector.unregister(registered)
        running = child.slot.read() if child.slot is not None else None
        actions = self._pool.died(number, child.cause, running, time.monotonic())
        child.close()
        self._log.info("worker ended", worker=number, cause=child.cause)
        self._act(actions)
        self._kills.pop(number, None)

    def _reap(self) -> None:
        """Finds ended workers where the system has no descriptor that tells."""
        for number, child in list(self._children.items()):
            if child.sentinel is None and child.ended():
                self._on_end(number)

    def _looks(self) -> dict[int, Running | None]:
        return {n: c.slot.read() for n, c in self._children.items() if c.slot is not None}

    # The maintenance process

    def _follow_maintenance(self, now: float) -> None:
        probing = self._pool.probing or not self._pool.database_up
        for event in self.maintenance.step(now, probing=probing):
            self._on_maintenance(event, now)
        self.fatal = self.fatal or self.maintenance.fatal
        if not self._pool.database_up:
            self._handover.refuse_unstarted(DATABASE_UNAVAILABLE)
        if now >= self._next_counts:
            self._next_counts = now + COUNTS_EVERY
            self._hand_over_counts()

    def _on_maintenance(self, event: FromMaintenance, now: float) -> None:
        match event:
            case MaintenanceReady(schema):
                self._act(self._pool.new_maintenance())
                if schema != "unreachable":
                    self._database_state(up=True)
            case DatabaseState(up):
                self._database_state(up=up)
            case DueRows(order, rows):
                self._pool.claimed(order, rows, now)
            case CancelAsked(name, reason):
                self._cancel(name, reason, now)
            case LimitsFound():
                self._say_limits(event)
                self._act(self._pool.limit(event))

    def _cancel(self, name: str, reason: str, now: float) -> None:
        actions = self._pool.crew.cancel(name, reason, self._looks(), now)
        for action in actions:
            if isinstance(action, Send):
                self._log.warning("cancelling a request", request_id=name, worker=action.worker,
                                  why=reason)  # fmt: skip
        self._act(actions)

    def _say_limits(self, found: LimitsFound) -> None:
        if found == self._limits:
            return  # as at a start, where nothing is limited
        self._limits = found
        names = ("each_instance", "of_total_now", "of_total_soon")
        types = {
            kind: {name: n for name, n in zip(names, limit, strict=True) if n is not None}
            for kind, limit in found.types.items()
        }
        self._log.info("limits", workers=found.workers, types=types, paused=found.paused)

    def _database_state(self, *, up: bool) -> None:
        if up and not self._pool.database_up:
            again = " again" if self._database_seen else ""
            self._log.info(f"database reached{again}: intake opens")
            self._handover.database_back()
        elif not up and self._pool.database_up:
            self._log.error("database away: intake stops until it is reached again")
        self._database_seen = self._database_seen or up
        self._pool.database(up=up)

    def _hand_over_counts(self) -> None:
        if self._pool.counts:
            self.maintenance.send(Counts(dict(self._pool.counts)))
            self._pool.counts.clear()
