"""Runs the pool's decisions: processes, sockets and signals, in the main process's one thread.

The loop calls `step` again and again; nothing here blocks for longer than the time it is given.
Workers' sockets and sentinels, the clerk's and the loop's own wake-up stand in one selector.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from structlog.stdlib import BoundLogger

from feedback.contract.record import (
    OFFSET,
    PARTITION,
    TOPIC,
    TYPE,
    Record,
    claim_of,
    is_due,
    record_size,
)
from feedback.contract.states import DATABASE_UNAVAILABLE, PARKED, SHUTDOWN, TIMEOUT, WORKER_DIED
from processing.ipc.channel import ChannelClosed
from processing.ipc.child import Child
from processing.ipc.frames import (
    Backend,
    CannotServe,
    Counts,
    Frame,
    ProbeDatabase,
    ReleaseClaims,
    Report,
    Returned,
    ToWorker,
    WorkerReady,
)
from processing.ipc.progress import Running
from processing.pool.maintenance_link import ClerkLink
from processing.pool.pool import (
    Action,
    DatabaseLost,
    Died,
    Fatal,
    Pool,
    PoolStats,
    Send,
    Signal,
    Spawn,
    Tell,
)
from processing.pool.running import request_id, running_requests
from processing.settings import PoolSettings, WorkerSettings

TICK = 0.05
"""Seconds between two looks at the workers' slots."""
COUNTS_EVERY = 1.0
"""Seconds between two hand-overs of the counters to the clerk."""


class Supervisor:
    """The workers and the clerk of one instance."""

    def __init__(
        self,
        pool: PoolSettings,
        worker: WorkerSettings,
        clerk: dict[str, Any],
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
        self._kept: list[Record] = []
        """Messages that only user code can read, while the database is away: nobody sends them
        again."""
        self._working = False
        self.clerk = ClerkLink(clerk, self._selector, log)
        self.types: list[str] = []
        """Request types of the app, as the last worker that started told them."""
        self.fatal: str | None = None
        """Why the service has to end, once it has to."""
        self.killed = 0
        """Workers that had to be killed while they ran a request, for another reason than its
        deadline."""

    # What the loop sees

    @property
    def in_hand(self) -> int:
        """Requests that are committed and not finished."""
        return self._pool.in_hand + self.clerk.refusing + len(self._kept)

    @property
    def in_hand_bytes(self) -> int:
        """The same in bytes."""
        kept = sum(map(record_size, self._kept)) if self._kept else 0
        return self._pool.in_hand_bytes + self.clerk.refusing_bytes + kept

    @property
    def pending(self) -> bool:
        """Records wait for a worker."""
        return len(self._pool.lanes) > 0

    @property
    def database_up(self) -> bool:
        """Whether requests can be journaled; while they can't, intake stops."""
        return self._pool.database_up

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

    def start_clerk(self) -> None:
        """Starts the clerk; `clerk.ready` is set in a later step."""
        self.clerk.start()

    def start_workers(self) -> None:
        """Starts the workers in the steps that follow."""
        self._pool.database_up = self.clerk.database_up
        self._working = True

    def submit(self, records: Sequence[Record]) -> None:
        """Takes records whose offsets are committed, each partition's in order."""
        self._pool.submit(records)

    def step(self, timeout: float) -> None:
        """Takes what has arrived within `timeout` seconds, then acts on it."""
        for key, mask in self._selector.select(timeout):
            key.data(mask)
        now = time.monotonic()
        self._follow_clerk(now)
        if now >= self._next_tick:
            self._next_tick = now + TICK
            self._reap()
            self._act(self._pool.tick(self._looks(), now))
        if self._refusing is not None:
            self._refuse_unstarted(self._refusing)
        elif self._pool.database_up:
            self._park(self._pool.take_excess())
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
        """Asks what still runs to give up."""
        self._act(self._pool.terminate(self._looks(), time.monotonic()))

    def kill(self) -> None:
        """Kills what is left."""
        for number in list(self._children):
            self._act([Signal(number, signal.SIGKILL, "the grace is over")])
            self.killed += 1

    def close(self, timeout: float) -> None:
        """Ends the clerk, after it has done what it was given; kills workers that are left."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)
            child.wait(timeout)
        self._hand_over_counts()
        self.clerk.close(timeout)
        self._selector.close()

    # Actions

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(number, frame):
                    self._send(number, frame)
                case Spawn(number):
                    self._spawn(number)
                case Signal(number, sent, reason):
                    name = signal.Signals(sent).name
                    self._log.warning("signalling a worker", worker=number, signal=name, why=reason)
                    self._children[number].signal(sent)
                case Fatal(message):
                    self.fatal = self.fatal or message
                case Tell(frame):
                    self.clerk.send(frame)
                case DatabaseLost():
                    self._log.error("database away: intake stops until the clerk reaches it again")
                    self.clerk.send(ProbeDatabase())
                case Died(number, cause, suspects, culprit):
                    self._log.error(
                        "worker died",
                        worker=number,
                        cause=cause,
                        suspects=suspects,
                        **_name(culprit),
                    )

    def _spawn(self, number: int) -> None:
        settings = {**self._worker_settings, "name": f"worker-{number}"}
        child = Child("processing.worker", settings, with_slot=True)
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

    # Events

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
            case WorkerReady(backend, types, at_once, decoded):
                self._log.info("worker ready", worker=number, pid=self._children[number].pid)
                self.types = types
                self.clerk.decoded = decoded
                self._pool.limit_by_app(at_once)
                self._pool.ready(number, backend)
            case Returned(chunk, indices):
                self._pool.returned(number, chunk, indices)
            case Report():
                self._act(self._pool.report(number, frame))
                if frame.leaving is not None:
                    self._log.info("replacing a worker", worker=number, why=frame.leaving)
                    self._act(self._pool.leave(number))
            case CannotServe(reason):
                if not self._pool.started_once:
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

    def _reap(self) -> None:
        """Finds ended workers where the system has no descriptor that tells."""
        for number, child in list(self._children.items()):
            if child.sentinel is None and child.ended():
                self._on_end(number)

    def _looks(self) -> dict[int, Running | None]:
        return {n: c.slot.read() for n, c in self._children.items() if c.slot is not None}

    # The clerk

    def _follow_clerk(self, now: float) -> None:
        self.clerk.step(now, database_up=self._pool.database_up)
        if self.clerk.fatal:
            self.fatal = self.fatal or self.clerk.fatal
        if self.clerk.database_back():
            again = " again" if self._database_seen else ""
            self._log.info(f"database reached{again}: intake opens")
            self._database_seen = self._pool.database_up = True
            self._pool.submit(self._kept)
            self._kept.clear()
        if self.clerk.is_new():
            self._act(self._pool.new_clerk())
        for order, rows in self.clerk.take_due():
            self._pool.claimed(order, rows, now)
        if (limits := self.clerk.new_limits()) is not None:
            self._log.info("limits", **limits._asdict())
            self._act(self._pool.limit(limits))
        if not self._pool.database_up:
            self._refuse_unstarted(DATABASE_UNAVAILABLE)
        if now >= self._next_counts:
            self._next_counts = now + COUNTS_EVERY
            self._hand_over_counts()

    def _refuse_unstarted(self, code: str) -> None:
        records = self._give_back(self._pool.take_unstarted()) if self._pool.in_hand else []
        if code == DATABASE_UNAVAILABLE and self.clerk.decoded:
            self._kept += [r for r in records if r[TOPIC] in self.clerk.decoded]
            records = [r for r in records if r[TOPIC] not in self.clerk.decoded]
        elif self._kept:
            records = self._kept + records
            self._kept = []
        if code == SHUTDOWN and self._pool.database_up:
            self.clerk.park(PARKED, records)
            self._park_suspects()
        elif records:
            self.clerk.refuse(code, records)

    def _park(self, records: Sequence[Record]) -> None:
        """Records that will not start here, or not soon, wait for any instance."""
        if records:
            self.clerk.park(PARKED, self._give_back(records))

    def _give_back(self, records: Sequence[Record]) -> list[Record]:
        """Gives claimed rows back; returns the other records."""
        due = [claim_of(record) for record in records if is_due(record)]
        if due:
            self.clerk.send(ReleaseClaims(due, []))
        return [record for record in records if not is_due(record)]

    def _park_suspects(self) -> None:
        """What was killed, and what waits behind it, once every worker has gone.

        A request that had its time is left: it failed, and nobody can write that any more. A
        claimed row that crashed is left to its lease, which counts that.
        """
        fresh: list[tuple[Record, tuple[int, int], Backend | None]] = []
        due: list[tuple[str, int]] = []
        backends: list[Backend] = []
        for record, suspicion in self._pool.take_suspects():
            starts, verdict, backend = 0, None, None
            if suspicion is not None:
                starts, verdict, backend = suspicion.crashes, suspicion.verdict, suspicion.backend
            # Killed on purpose is no crash.
            crashes = starts - 1 if verdict == SHUTDOWN and starts else starts
            if verdict == TIMEOUT:
                self._log.error("left unanswered", verdict=verdict, **_name(record))
            elif not is_due(record):
                fresh.append((record, (starts, crashes), backend))
            elif not crashes and verdict != WORKER_DIED:
                due.append(claim_of(record))
                backends += [] if backend is None else [backend]
        self.clerk.park_suspects(PARKED, fresh)
        if due:
            self.clerk.send(ReleaseClaims(due, list(dict.fromkeys(backends))))

    def _hand_over_counts(self) -> None:
        if self._pool.counts:
            self.clerk.send(Counts(dict(self._pool.counts)))
            self._pool.counts.clear()


def _name(record: Record | None) -> dict[str, Any]:
    """What names a record in a log line."""
    if record is None:
        return {}
    place = f"{record[TOPIC]}/{record[PARTITION]}/{record[OFFSET]}"
    return {"type": record[TYPE], "record": place, "request_id": request_id(record)}
