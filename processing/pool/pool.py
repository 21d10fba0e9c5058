"""The pool's decisions: which worker gets what, what a death means, when a request is overdue.

A plain object: events in, actions out, with the time as an argument. The supervisor does what the
actions say. Workers are named by numbers that are never used twice, so nothing that belongs to a
dead worker is ever taken for its successor's.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from feedback.contract.record import Record, is_due, kind_of, record_size
from feedback.contract.states import MOST_CRASHES
from processing.ipc.frames import (
    HoldTokens,
    LimitsFound,
    Recall,
    RenewClaims,
    Report,
    RowDueIn,
    RunChunk,
    Stop,
    Suspect,
    ToMaintenance,
    ToWorker,
)
from processing.ipc.progress import Running
from processing.pool.costs import Costs
from processing.pool.demand import RENEW_EVERY, Wants
from processing.pool.lanes import CHUNK_REQUESTS, Chunk, Lanes
from processing.pool.limits import Caps
from processing.pool.restart_backoff import Respawn
from processing.settings import PoolSettings

CHUNKS_IN_FLIGHT = 2
PREFETCH = CHUNK_REQUESTS // 4
"""A second chunk goes to a busy worker only when at least so many records wait."""
RECALL_AFTER = 0.2
"""Seconds a request may run before what waits behind it in the same worker is called back."""
WAITING_PER_CAP = 10
FEW = 100
"""Of a limited type ten times its cap may wait here, or so many."""
TIMEOUT, WORKER_DIED, SHUTDOWN = "timeout", "worker_died", "shutdown"


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a worker."""

    worker: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame to a worker."""

    worker: int
    frame: ToWorker


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to a worker."""

    worker: int
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """Nothing can run: end the service with this message."""

    message: str


@dataclass(frozen=True, slots=True)
class DatabaseLost:
    """A worker found the database away: have it probed."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a frame to the clerk."""

    frame: ToMaintenance


@dataclass(frozen=True, slots=True)
class Died:
    """A worker died with work in hand; for the log."""

    worker: int
    cause: str
    suspects: int
    culprit: Record | None


Action = Spawn | Send | Signal | Fatal | DatabaseLost | Tell | Died


@dataclass(slots=True)
class Worker:
    """What the pool knows of one worker process."""

    number: int
    started_at: float
    ready: bool = False
    leaving: bool = False
    """It was told to stop: it gets nothing more, and its exit is no death."""
    chunks: list[Chunk] = field(default_factory=list)
    """In flight, in the order in which the worker runs them."""
    backend: tuple[int, str] | None = None
    terminated: tuple[Running, float, str] | None = None
    """The request for which SIGTERM was sent, when, and why."""
    recalled: int = -1
    """Number of the chunk whose unstarted rest was called back last."""

    @property
    def may_prefetch(self) -> bool:
        """It may have a chunk more: nothing waits behind a request that goes alone or is late."""
        if not 0 < len(self.chunks) < CHUNKS_IN_FLIGHT:
            return False
        return not self.chunks[0].alone and self.recalled != self.chunks[0].number


@dataclass(frozen=True, slots=True)
class PoolStats:
    """A frozen look at the pool."""

    workers: int
    workers_free: int
    queued: int
    running: int
    in_hand: int
    deaths: int
    database_up: bool
    workers_wanted: int = 0
    at_once: dict[str, int] = field(default_factory=dict)
    """Type -> the most that may be in flight, or still is, of what instances share."""


class Pool:
    """Bounded work in hand, shared out over workers."""

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.costs = Costs()
        self.lanes = Lanes(settings.ordering, self.costs)
        self.caps = Caps()
        self.wants = Wants(settings.max_due, settings.max_due_bytes, settings.workers)
        self.workers: dict[int, Worker] = {}
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.in_hand = 0
        self.in_hand_bytes = 0
        self.database_up = True
        self.stopping = False
        """No new chunk is sent any more."""
        self.claiming = True
        """Rows of the waiting queue are wanted."""
        self.deaths = 0
        self._respawn = Respawn()
        self._wanted = settings.workers
        self._elsewhere: list[Record] = []
        """Records in hand that will not start here."""
        self._next_worker = 0
        self._next_chunk = 0
        self._alone_turn = True
        self._hold_at = 0.0

    @property
    def started_once(self) -> bool:
        """Whether any worker has ever started well."""
        return self._respawn.started_once

    # Work

    def submit(self, records: Sequence[Record]) -> None:
        """Takes records whose offsets are committed, each partition's in order."""
        self.in_hand += len(records)
        self.in_hand_bytes += sum(map(record_size, records))
        if elsewhere := self.caps.elsewhere:
            self._elsewhere += [r for r in records if kind_of(r) in elsewhere]
            records = [r for r in records if kind_of(r) not in elsewhere]
        self.lanes.submit(records)

    def take_excess(self) -> list[Record]:
        """Gives up records of limited types that will not start here, or not for long.

        Those of types that are paused or that others run; and of the other limited types what
        waits beyond ten times the cap, so that none of them fills the pool.
        """
        if not self._elsewhere and not self.lanes.waiting:
            return []
        waiting = self.lanes.waiting
        allowed = {kind: self._may_wait(kind, waiting) for kind in waiting}
        records = [*self._elsewhere, *self.lanes.take_excess(allowed)]
        self._elsewhere.clear()
        self._forget(records)
        return records

    def take_unstarted(self) -> list[Record]:
        """Gives up every record that no worker has and that is no suspect."""
        records = [*self._elsewhere, *self.lanes.empty()]
        self._elsewhere.clear()
        self._forget(records)
        return records

    def take_suspects(self) -> list[tuple[Record, Suspect | None]]:
        """Gives up the suspects, and what waits behind them, once every worker has gone."""
        if self.workers:
            return []
        held = self.lanes.take_suspects()
        self._forget([h.record for h in held])
        return [(h.record, h.suspicion) for h in held]

    # The waiting queue

    def ask(self, now: float) -> list[Action]:
        """What to say to the clerk: how many due rows are wanted, whose leases to renew."""
        actions: list[Action] = []
        if (renewal := self.wants.renewal(now)) is not None:
            actions.append(Tell(renewal))
        if now >= self._hold_at:
            self._hold_at = now + min(RENEW_EVERY, self.settings.lease / 3)
            actions += self._hold()
        if self.stopping or not self.claiming or not self.database_up:
            frame = self.wants.close()
        elif not any(w.ready and not w.leaving for w in self.workers.values()):
            return actions
        else:
            running = sum(c.due for w in self.workers.values() for c in w.chunks)
            frame = self.wants.next(running, self._due_limits(), self.caps.elsewhere, now)
        if frame is not None:
            actions.append(Tell(frame))
        return actions

    def claimed(self, order: int, rows: Sequence[tuple[Record, str | None]], now: float) -> None:
        """The clerk has claimed rows: (record, verdict), those that are due first first."""
        self.wants.came(order, [record for record, _ in rows], now)
        self.submit([record for record, verdict in rows if verdict is None])
        for record, verdict in rows:
            if verdict is None:
                continue
            self.in_hand += 1
            self.in_hand_bytes += record_size(record)
            # The row itself says how often it crashed.
            self.lanes.submit_suspect(record, Suspect(verdict, None, None))

    def new_clerk(self) -> list[Action]:
        """There is another clerk: it is told of every claimed row in hand."""
        self.wants.forget()
        renewal = [Tell(RenewClaims(self.wants.pairs))] if self.wants else []
        return [*renewal, *self._hold()]

    def _hold(self) -> list[Action]:
        """Leases of calls outside are renewed for as long as this process has their chunks."""
        tokens = [self.token(chunk) for w in self.workers.values() for chunk in w.chunks]
        return [Tell(HoldTokens(tokens))] if tokens else []

    def _due_limits(self) -> dict[str, int]:
        """Of limited types, how many more may wait here."""
        if not self.caps.most:
            return {}
        waiting = self.lanes.waiting
        return {
            kind: max(0, self._may_wait(kind, waiting) - waiting.get(kind, 0))
            for kind in self.caps.most
            if kind not in self.caps.elsewhere
        }

    def _may_wait(self, kind: str, waiting: Mapping[str, int]) -> int:
        """How many of a limited type may wait here; all such types together fill a quarter."""
        if kind in self.caps.elsewhere:
            return 0
        quarter = self.settings.max_in_hand // 4 // max(1, len(waiting))
        most = self.caps.most[kind]
        return max(most, min(max(WAITING_PER_CAP * most, FEW), quarter))

    # Chunks

    def plan(self, now: float) -> list[Action]:
        """What to do now: start missing workers, fill free ones."""
        actions: list[Action] = []
        if not self.stopping:
            actions += self._spawn_missing(now)
        if self.stopping or not self.database_up or not len(self.lanes):
            return actions
        ready = [w for w in self.workers.values() if w.ready and not w.leaving]
        free = [w for w in ready if not w.chunks]
        for left, worker in zip(range(len(free), 0, -1), free, strict=True):
            if not (chunk := self._next_for(worker, -(-len(self.lanes) // left))):
                break
            actions.append(self._send(worker, chunk))
        for worker in ready:
            if len(self.lanes) < PREFETCH:
                break
            if worker.may_prefetch:
                chunk = self._chunk_for(worker)
                if self.lanes.take_quick(chunk, CHUNK_REQUESTS, worker.chunks):
                    actions.append(self._send(worker, chunk))
        return actions

    def _next_for(self, worker: Worker, share: int) -> Chunk | None:
        """The next chunk of a free worker; those that go alone and the others take turns."""
        chunk = self._chunk_for(worker)
        self._alone_turn = not self._alone_turn
        taken = (
            (self._alone_turn and self.lanes.take_alone(chunk))
            or self.lanes.take_quick(chunk, share)
            or self.lanes.take_alone(chunk)
        )
        return chunk if taken else None

    def _chunk_for(self, worker: Worker) -> Chunk:
        return Chunk(self._next_chunk, worker.number)

    def _send(self, worker: Worker, chunk: Chunk) -> Send:
        self._next_chunk += 1
        worker.chunks.append(chunk)
        if self.wants:
            chunk.due = sum(map(is_due, chunk.records))
        return Send(
            worker.number,
            RunChunk(chunk.number, self.token(chunk), chunk.records, chunk.suspicion),
        )

    def token(self, chunk: Chunk) -> str:
        """The token that a chunk's claims carry: no other chunk of any instance has it."""
        return f"{self.settings.instance}-{chunk.number}"

    # What workers say

    def ready(self, number: int, backend: tuple[int, str] | None) -> None:
        """A worker has loaded the app and is connected."""
        worker = self.workers[number]
        worker.ready = True
        worker.backend = backend
        self._respawn.ready()

    def returned(self, number: int, chunk_number: int, indices: Sequence[int]) -> None:
        """A worker gave back records that it had not started."""
        worker = self.workers[number]
        for chunk in worker.chunks:
            if chunk.number == chunk_number:
                self.lanes.take_back(chunk, indices, worker.chunks)

    def report(self, number: int, report: Report) -> list[Action]:
        """A worker is done with its first chunk."""
        worker = self.workers[number]
        chunk = worker.chunks.pop(0)
        if chunk.number != report.chunk:
            raise AssertionError(f"worker {number} reported chunk {report.chunk}, not its first")
        for kind, (count, seconds) in report.times.items():
            self.costs.observe(kind, count, seconds)
        self.counts.update(report.counts)
        token = self.token(chunk)
        back = dict.fromkeys(report.returned)
        suspicions = dict.fromkeys(back, chunk.suspicion) if chunk.suspicion else {}
        for index in report.unclear:
            crashes = chunk.suspicion.crashes if chunk.suspicion else 0
            suspicions[index] = Suspect(None, worker.backend, token, crashes)
        worker.backend = report.backend
        back.update(dict.fromkeys(report.unclear))
        self._finish(chunk, back, suspicions)
        due_in = report.due_in
        actions: list[Action] = [] if due_in is None else [Tell(RowDueIn(due_in))]
        if not report.database_up and self.database_up:
            self.database_up = False
            actions.append(DatabaseLost())
        return actions

    def _finish(
        self, chunk: Chunk, back: Mapping[int, None], suspicions: Mapping[int, Suspect | None]
    ) -> None:
        done = {i: r for i, r in chunk.remaining() if i not in back}
        self._forget(list(done.values()))
        chunk.gone.update(done)
        self.lanes.put_back(chunk, {i: s for i, s in suspicions.items() if s is not None})

    def _forget(self, records: Sequence[Record]) -> None:
        self.in_hand -= len(records)
        self.in_hand_bytes -= sum(map(record_size, records))
        if self.wants:
            self.wants.went(records)

    # Deaths

    def died(self, number: int, cause: str, running: Running | None, now: float) -> list[Action]:
        """A worker is gone, after everything that it sent was taken.

        `running` is the last look at its slot. Its records come back: of the chunk it ran as
        suspects, one by one; of the chunk it had not begun as they were.
        """
        worker = self.workers.pop(number)
        if not worker.ready:
            self._respawn.failed(now)
        if not worker.chunks:
            if not worker.leaving and worker.ready:
                self._respawn.died(now)
            return []
        self.deaths += 1
        for unstarted in worker.chunks[:0:-1]:
            self.lanes.put_back(unstarted, self._same(unstarted))
        chunk = worker.chunks[0]
        culprit = self._culprit(chunk, running)
        self._respawn.died(now, blamed=culprit is not None)
        suspicions: dict[int, Suspect] = {}
        for index, _ in chunk.remaining():
            crashes = chunk.suspicion.crashes if chunk.suspicion else 0
            verdict = chunk.suspicion.verdict if chunk.suspicion else None
            if index == culprit:
                crashes += 1
                verdict = verdict or self._verdict(worker, chunk, index, crashes)
            suspicions[index] = Suspect(verdict, worker.backend, self.token(chunk), crashes)
        self.lanes.put_back(chunk, suspicions)
        blamed = None if culprit is None else chunk.records[culprit]
        return [Died(number, cause, len(suspicions), blamed)]

    @staticmethod
    def _same(chunk: Chunk) -> dict[int, Suspect]:
        return {} if chunk.suspicion is None else {0: chunk.suspicion}

    @staticmethod
    def _culprit(chunk: Chunk, running: Running | None) -> int | None:
        """The index of the request that ran at the death, where one can be named."""
        if running is not None and running.chunk == chunk.number and running.index is not None:
            return running.index
        # It was alone: whatever killed the worker, a look-up, a COMMIT or a batch handler, may do
        # so again and again, so it is counted.
        return 0 if len(chunk.records) == 1 else None

    @staticmethod
    def _verdict(worker: Worker, chunk: Chunk, index: int, crashes: int) -> str | None:
        if worker.terminated is not None:
            running, _, reason = worker.terminated
            if running.chunk == chunk.number and running.index in (index, None):
                return reason
        return WORKER_DIED if crashes >= MOST_CRASHES else None

    # Time

    def tick(self, looks: Mapping[int, Running | None], now: float) -> list[Action]:
        """Looks at what runs: overdue requests, workers that don't start, slow neighbours."""
        actions: list[Action] = []
        for worker in self.workers.values():
            if not worker.ready:
                if now - worker.started_at > self.settings.start_timeout:
                    actions.append(Signal(worker.number, signal.SIGKILL, "did not start in time"))
                continue
            running = looks.get(worker.number)
            if running is None:
                worker.terminated = None
                continue
            actions += self._overdue(worker, running, now)
            actions += self._recall(worker, running, now)
        return actions

    def _overdue(self, worker: Worker, running: Running, now: float) -> list[Action]:
        if worker.terminated is not None:
            told, at, reason = worker.terminated
            if told != running:
                worker.terminated = None
            elif now - at >= self.settings.kill_gap:
                return [Signal(worker.number, signal.SIGKILL, reason)]
            return []
        if running.deadline is not None and now >= running.deadline:
            worker.terminated = (running, now, TIMEOUT)
            return [Signal(worker.number, signal.SIGTERM, TIMEOUT)]
        return []

    def _recall(self, worker: Worker, running: Running, now: float) -> list[Action]:
        """A request that takes its time holds up nothing that could run elsewhere."""
        waiting = len(worker.chunks) > 1 or (worker.chunks and len(worker.chunks[0].records) > 1)
        late = now - running.started > RECALL_AFTER
        if not waiting or not late or len(self.workers) < 2 or worker.recalled == running.chunk:
            return []
        worker.recalled = running.chunk
        return [Send(worker.number, Recall())]

    # Life

    def limit(self, found: LimitsFound) -> list[Action]:
        """Other limits hold, as the clerk tells them."""
        if self.caps.limits(found):
            self._limit_lanes()
        return self.resize(self.caps.workers or self.settings.workers)

    def limit_by_app(self, at_once: Mapping[str, int]) -> None:
        """The handlers' own limits."""
        if self.caps.app(at_once):
            self._limit_lanes()

    def _limit_lanes(self) -> None:
        in_chunk = {kind: self.caps.in_chunk(kind, self._wanted) for kind in self.caps.most}
        chunks = [chunk for worker in self.workers.values() for chunk in worker.chunks]
        self.lanes.limit(self.caps.most, in_chunk, chunks)
        self.lanes.submit([r for r in self._elsewhere if kind_of(r) not in self.caps.elsewhere])
        self._elsewhere = [r for r in self._elsewhere if kind_of(r) in self.caps.elsewhere]

    def resize(self, workers: int) -> list[Action]:
        """Changes how many workers there should be; those too many end after what they run."""
        if workers == self._wanted:
            return []
        self._wanted = workers
        self._limit_lanes()
        staying = [w for w in self.workers.values() if not w.leaving]
        return [action for w in staying[workers:] for action in self.leave(w.number)]

    def leave(self, number: int) -> list[Action]:
        """A worker gets nothing more, gives back what it has not started, and exits."""
        worker = self.workers[number]
        if worker.leaving:
            return []
        worker.leaving = True
        return [Send(number, Stop())]

    def stop(self) -> list[Action]:
        """Every worker ends after the request that it runs; nothing new is started."""
        self.stopping = True
        return [action for number in list(self.workers) for action in self.leave(number)]

    def terminate(self, looks: Mapping[int, Running | None], now: float) -> list[Action]:
        """Asks what still runs to give up, because the service is about to end."""
        actions: list[Action] = []
        for number, worker in self.workers.items():
            running = looks.get(number)
            if running is not None:
                worker.terminated = (running, now, SHUTDOWN)
            actions.append(Signal(number, signal.SIGTERM, SHUTDOWN))
        return actions

    def _spawn_missing(self, now: float) -> list[Action]:
        if self._respawn.hopeless:
            return [Fatal(self._respawn.hopeless)]
        missing = self._wanted - sum(not w.leaving for w in self.workers.values())
        actions: list[Action] = []
        while missing > 0 and self._respawn.may(now):
            number = self._next_worker
            self._next_worker += 1
            self.workers[number] = Worker(number, now)
            actions.append(Spawn(number))
            missing -= 1
        return actions

    def stats(self) -> PoolStats:
        """A frozen look at the pool."""
        ready = [w for w in self.workers.values() if w.ready and not w.leaving]
        return PoolStats(
            workers=len(ready),
            workers_free=sum(not w.chunks for w in ready),
            queued=len(self.lanes),
            running=sum(len(c.records) - len(c.gone) for w in ready for c in w.chunks),
            in_hand=self.in_hand,
            deaths=self.deaths,
            database_up=self.database_up,
            workers_wanted=self._wanted,
            at_once=self.caps.at_once(self.lanes.in_flight),
        )
