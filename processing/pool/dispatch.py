"""Which worker gets what next. Pure."""

from __future__ import annotations

from typing import Final

from feedback.contract.record import is_due
from processing.ipc.frames import RunChunk
from processing.pool.actions import Action, Send
from processing.pool.calls import SeatedCalls
from processing.pool.chunk import CHUNK_REQUESTS, Chunk
from processing.pool.demand import Demand
from processing.pool.lanes import Lanes
from processing.pool.worker_state import Worker
from processing.pool.worker_time import TimeShares
from processing.pool.workers import Workers

PREFETCH: Final = CHUNK_REQUESTS // 4
"""A second chunk goes to a busy worker only when at least so many records wait."""
TRY_EVERY: Final = 5.0
"""Seconds between two tries of workers that are cut off from the database, and have nothing else
to reach it for."""
QUICK, ALONE = "quick", "alone"
"""Who shares the workers' time, beside calls."""


class Dispatch:
    """Fills chunks, and seats."""

    def __init__(
        self, lanes: Lanes, crew: Workers, calls: SeatedCalls, wants: Demand, instance: str
    ) -> None:
        self._lanes = lanes
        self._crew = crew
        self._calls = calls
        self._wants = wants
        self._instance = instance
        self._shares: TimeShares[str] = TimeShares()
        self._next_chunk = 0
        self._try_at = float("-inf")

    def plan(self, now: float) -> list[Action]:
        """Gives free workers something to do, and busy ones what they do next."""
        actions = self._fill() if len(self._lanes) else []
        if now >= self._try_at and self._crew.cut_off:
            self._try_at = now + TRY_EVERY
            actions += self._tries()
        return actions

    def _fill(self) -> list[Action]:
        actions, calls_first = self._decided(), False
        if self._calls.at_once:
            actions += self._calls.plan(self._chunk_for, self._send)
            calls_first = self._calls.in_turn
        takers = self._crew.takers
        free = [w for w in takers if not w.chunks]
        for left, worker in zip(range(len(free), 0, -1), free, strict=True):
            if not (chunk := self._next_for(worker, -(-self._waiting // left))):
                if self._calls.at_once:
                    actions += self._calls.plan(self._chunk_for, self._send, others_ready=False)
                break
            actions.append(self._send(worker, chunk))
        return actions + self._prefetch(takers, calls_first=calls_first)

    def _decided(self) -> list[Action]:
        """Looks up what dead workers left, where that is all: its sender need not wait for more."""
        actions: list[Action] = []
        for worker in self._crew.all.values():
            if not self._lanes.alone_waits:
                break
            if worker.takes_chunks and not worker.chunks:
                chunk = self._chunk_for(worker)
                if not self._lanes.take_decided(chunk):
                    break
                actions.append(self._send(worker, chunk))
        return actions

    def _tries(self) -> list[Action]:
        """Chunks without records: a worker that has lost the database connects for one."""
        free = [w for w in self._crew.takers if not w.chunks]
        return [self._send(worker, self._chunk_for(worker)) for worker in free]

    def _prefetch(self, takers: list[Worker], *, calls_first: bool) -> list[Action]:
        actions: list[Action] = []
        # One worker runs dry where it is the others' turn: they never go behind another chunk.
        spare = calls_first or (self._lanes.alone_waits and self._turns()[0] == ALONE)
        for worker in takers:
            if self._waiting < PREFETCH:
                break
            if not worker.may_prefetch:
                continue
            if spare:
                spare = False
                continue
            chunk = self._chunk_for(worker)
            if self._lanes.take_quick(chunk, CHUNK_REQUESTS, worker.chunks):
                actions.append(self._send(worker, chunk))
        return actions

    @property
    def _waiting(self) -> int:
        """Records that wait for nothing but workers and others of their lanes and limits."""
        return len(self._lanes) - self._lanes.kept_back.now.records

    def was_held_up(self, chunk: Chunk, index: int, seconds: float) -> None:
        """A locked record kept a worker so long: others have as much time before its next turn."""
        self._shares.served(ALONE, seconds)
        self._lanes.was_held_up(chunk, index, seconds)

    def _turns(self) -> list[str]:
        return self._shares.in_turn((QUICK, ALONE))

    def _next_for(self, worker: Worker, share: int) -> Chunk | None:
        """The next chunk of a free worker; those that go alone and the others share the time."""
        chunk = self._chunk_for(worker)
        taken = (
            (self._turns()[0] == ALONE and self._lanes.take_alone(chunk))
            or self._lanes.take_quick(chunk, share)
            or self._lanes.take_alone(chunk)
        )
        return chunk if taken else None

    def _chunk_for(self, worker: Worker) -> Chunk:
        return Chunk(self._next_chunk, worker.number)

    def _send(self, worker: Worker, chunk: Chunk) -> Send:
        self._next_chunk += 1
        worker.chunks.append(chunk)
        if chunk.suspect is None or not chunk.suspect.decided:
            if chunk.seat is None:
                self._shares.served(ALONE if chunk.alone else QUICK, chunk.seconds)
            self._calls.served(chunk)
        if self._wants.hand:
            chunk.due = sum(map(is_due, chunk.records))
        frame = RunChunk(
            chunk.number,
            chunk.token(self._instance),
            chunk.records,
            chunk.suspect,
            worker.returns,
            chunk.seat,
        )
        return Send(worker.number, frame)
