"""Calls: requests of `async def` handlers, of which a worker has many open at once. Pure.

Each is a chunk of its own, in a seat of its worker. A worker has calls or chunks, never both: so
whoever dies or hangs is known, and no handler that takes its time keeps the ends of calls waiting.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from feedback.contract.states import CANCELLED, SHUTDOWN, TIMEOUT
from processing.ipc.frames import Cancel, CancelAsked, Recall
from processing.ipc.progress import Running
from processing.pool.actions import Action, Send, Signal
from processing.pool.chunk import Chunk
from processing.pool.deadlines import RECALL_AFTER
from processing.pool.lanes import Lanes
from processing.pool.running import facts_of, request_id
from processing.pool.terminated import LOOP_BLOCKED, Terminated
from processing.pool.worker_state import Worker
from processing.pool.worker_time import TimeShares
from processing.pool.workers import Workers

SeatLooks: TypeAlias = Mapping[int, Mapping[int, Running | None]]
"""Worker -> seat -> what runs there."""

CALLS: Final = "calls"
CHUNKS: Final = "chunks"


class SeatedCalls:
    """Which worker gets a call, and what is done about calls that go on."""

    def __init__(self, lanes: Lanes, crew: Workers, kill_gap: float) -> None:
        self.at_once: Mapping[str, int] = {}
        """Kind -> how many one worker may have open."""
        self._lanes = lanes
        self._crew = crew
        self._kill_gap = kill_gap
        self._others = False
        """The app has handlers of other kinds."""
        self._time: TimeShares[str] = TimeShares()

    def app(self, at_once: Mapping[str, int], *, others: bool) -> None:
        """What the app's handlers say."""
        self._others = others
        if at_once != self.at_once:
            self.at_once = dict(at_once)
            self._lanes.run_beside(self.at_once)

    # Who gets one

    @property
    def in_turn(self) -> bool:
        """A call waits, and it has its turn before what goes in chunks."""
        if not self._lanes.calls_wait:
            return False
        return not self._lanes.chunks_wait or self._time.in_turn((CALLS, CHUNKS))[0] == CALLS

    @property
    def has_room(self) -> bool:
        """A worker may be given something that it starts at once."""
        return any(
            worker.takes_chunks and (not worker.chunks or worker.seats.have_room(self.at_once))
            for worker in self._crew.all.values()
        )

    def served(self, chunk: Chunk) -> None:
        """A chunk was sent."""
        if self.at_once:
            self._time.served(CHUNKS if chunk.seat is None else CALLS, chunk.seconds)

    def plan(
        self,
        make: Callable[[Worker], Chunk],
        send: Callable[[Worker, Chunk], Send],
        *,
        others_ready: bool = True,
    ) -> list[Action]:
        """Fills seats: of workers that have calls, then of free ones.

        A free one gets all that it may have: while its calls are open it can do nothing else. Where
        it is the turn of what goes in chunks, one worker that has calls gets no more. Without
        `others_ready` nothing can go in chunks now, whatever waits.
        """
        actions: list[Action] = []
        takers = self._crew.takers
        callers = [w for w in takers if w.seats.taken]
        drained = _to_drain(callers, len(takers)) if others_ready else None
        get_on = [w for w in callers if not w.seats.held_up]
        for worker in get_on + self._free(takers, callers):
            waits = others_ready and (worker is drained or not worker.chunks)
            go_on = self.in_turn if waits else self._lanes.calls_wait
            while go_on:
                chunk, seats = make(worker), worker.seats
                if not self._lanes.take_call(chunk, partial(seats.has_room, at_once=self.at_once)):
                    break
                seats.take(chunk)
                actions.append(send(worker, chunk))
                go_on = self.in_turn if worker is drained else self._lanes.calls_wait
        return actions

    def _free(self, takers: list[Worker], callers: list[Worker]) -> list[Worker]:
        """Workers that have nothing; one of several is kept for what goes in chunks."""
        free = [w for w in takers if not w.chunks]
        kept = 1 if self._others and len(takers) > 1 else 0
        return free[: max(0, len(takers) - kept - len(callers))]

    # What goes on

    @property
    def seats(self) -> dict[int, list[int]]:
        """Worker -> seats that are taken."""
        return {n: list(w.seats.taken) for n, w in self._crew.all.items() if w.seats.taken}

    def facts_of(self, signal: Signal) -> dict[str, Any]:
        """What names the call that a signal is about, in a log line; empty where it is no call."""
        worker = self._crew.all.get(signal.worker)
        if worker is None or signal.seat not in worker.seats.taken:
            return {}
        return facts_of(worker.seats.taken[signal.seat].records[0])

    def tick(self, looks: SeatLooks, now: float) -> list[Action]:
        """Looks at what is open. A worker ends what is overdue itself, unless its loop is stuck."""
        actions: list[Action] = []
        for number, worker in self._crew.all.items():
            seats = worker.seats
            began = set()
            for seat, running in seats.at_work(looks.get(number, {})):
                began.add(seat)
                actions += self._overdue(worker, seat, running, now)
            if len(self._crew.all) > 1 and seats.look(began, now, RECALL_AFTER):
                actions.append(Send(number, Recall()))
        return actions

    def _overdue(self, worker: Worker, seat: int, running: Running, now: float) -> list[Action]:
        told = worker.seats.told.get(seat)
        if self._crew.terminating:
            if not _asked(told):
                worker.seats.told[seat] = Terminated(running, now, SHUTDOWN)
        elif told is None or (told.why != CANCELLED and told.running != running):
            worker.seats.told.pop(seat, None)
            if running.deadline is not None and now >= running.deadline:
                why = LOOP_BLOCKED if running.index is None else TIMEOUT
                worker.seats.told[seat] = Terminated(running, now, why)
        elif told.running != running:
            # What it was told in is over, and the others need not die for that: what comes then
            # ends by itself, and what still waits for the database is not to be hurried.
            worker.seats.told[seat] = told._replace(running=running, at=now)
        elif running.deadline is not None and now >= self._kill_at(told, running.deadline):
            worker.seats.told[seat] = told._replace(killed=True)
            return [Signal(worker.number, signal.SIGKILL, told.why, meant=running, seat=seat)]
        return []

    def _kill_at(self, told: Terminated, deadline: float) -> float:
        at = told.at + self._kill_gap
        # What waits for the loop was not begun, and will not be: others need not die for that
        # before the loop counts as blocked.
        waits = told.why == CANCELLED and told.running.index is None
        return max(at, deadline) if waits else at

    def cancel(self, asked: CancelAsked, looks: SeatLooks, now: float) -> list[Action]:
        """Ends that request and no other; nothing where it does not run at this look."""
        for number, worker in self._crew.all.items():
            for seat, running in worker.seats.at_work(looks.get(number, {})):
                chunk = worker.seats.taken[seat]
                if not asked.means(request_id(chunk.records[0]), chunk.number):
                    continue
                if self._crew.terminating or _asked(worker.seats.told.get(seat)):
                    return []
                if running.deadline is not None:  # else it is not made yet, and never will be
                    worker.seats.told[seat] = Terminated(running, now, CANCELLED, asked.reason)
                return [Send(number, Cancel(chunk.number, 0, asked.reason))]
        return []


def _asked(told: Terminated | None) -> bool:
    """Whether a call was asked to end: not where it only waits for a loop that is blocked."""
    return told is not None and told.why != LOOP_BLOCKED


def _to_drain(callers: list[Worker], workers: int) -> Worker | None:
    """Who is to have no calls soon, that what goes in chunks gets half of the workers."""
    if len(callers) * 2 <= workers:
        return None
    return min(callers, key=lambda worker: len(worker.seats.taken))
