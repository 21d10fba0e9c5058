"""The workers of one instance: who is there, who comes and goes. Pure.

Workers are named by numbers that are never used twice, so nothing that belongs to a dead worker is
ever taken for its successor's.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from typing import Final

from feedback.backend import Backend
from feedback.contract.states import SHUTDOWN
from processing.ipc.frames import CancelAsked, Stop
from processing.ipc.progress import Running
from processing.pool.actions import Action, NoWorkerStarts, Send, Signal, Spawn, StartsPaused
from processing.pool.chunk import Chunk
from processing.pool.deadlines import cancel, note_terminated, overdue, recall
from processing.pool.restart_backoff import REFUSED, RestartBackoff
from processing.pool.running import at_work, request_id
from processing.pool.worker_deaths import death_cause
from processing.pool.worker_state import WORKER_STATES, Worker
from processing.settings import PoolSettings

TERM_AGAIN: Final = 0.2
"""Seconds between two SIGTERM to a worker that shall give up: one that comes before the worker
knows that it is to end means nothing to it."""

DIED: Final = (
    "workers in a row died while they started, before they could say why; run the app's import by"
    " hand (python -c 'import <module>') to see it"
)
LATE: Final = (
    "workers in a row did not start: the last one was ended here, as it was not ready after"
    " {:g} s; where the app's import and its start hooks may take longer, raise"
    " ONCEPOOL_WORKER_START_TIMEOUT (worker_start_timeout)"
)


class Workers:
    """Bounded in number; replaced one at a time."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.all: dict[int, Worker] = {}
        self.wanted = settings.workers
        self.respawn = RestartBackoff(DIED)
        self.deaths: Counter[str] = Counter()
        """Workers that were not told to end, by cause."""
        self._reached, self._turned_away = True, False
        self._next = 0
        self._retiring: dict[int, None] = {}
        """Workers that shall be replaced, the first of them as soon as another is ready."""
        self._told_again = float("-inf")
        self._ending = False
        """All are told to stop: the service ends."""
        self.terminating = False
        """Whoever is there shall give up: the service is about to end."""

    @property
    def chunks(self) -> list[Chunk]:
        """All that are in flight."""
        return [chunk for worker in self.all.values() for chunk in worker.chunks]

    @property
    def serving(self) -> list[Worker]:
        """Workers that are ready and stay."""
        return [w for w in self.all.values() if w.ready and not w.leaving]

    @property
    def states(self) -> dict[str, int]:
        """How many are in which state."""
        found = dict.fromkeys(WORKER_STATES, 0)
        for worker in self.all.values():
            found[worker.state] += 1
        return found

    @property
    def takers(self) -> list[Worker]:
        """Those that may be given something."""
        return [w for w in self.all.values() if w.takes_chunks]

    @property
    def idle(self) -> bool:
        """One may be given something, and has nothing."""
        return any(w.takes_chunks and not w.chunks for w in self.all.values())

    @property
    def cut_off(self) -> bool:
        """Workers are there, and none of them has reached the database since it lost it."""
        found = False  # a loop that ends early, as it is asked in each step
        for worker in self.all.values():
            if worker.ready and not worker.leaving:
                if not worker.cut_off:
                    return False
                found = True
        return found

    @property
    def database_up(self) -> bool:
        """Whether what they are given can be journaled.

        The maintenance process says so. Where the server is there and lets nobody new in, it says
        nothing of workers' sessions: these are tried until each was found lost.
        """
        if self._reached or not self._turned_away:
            return self._reached
        return any(worker.backends and not worker.cut_off for worker in self.serving)

    @property
    def none_starts(self) -> bool:
        """Nobody is there, and the last one that was started failed."""
        return self.respawn.failing and not self.serving

    # Who comes

    def spawn_missing(self, now: float) -> list[Action]:
        """Starts what is missing, and one more where one is to be replaced.

        Whoever leaves counts until it has ended: a start makes no more than `wanted` and one
        processes, however long those run what they have.
        """
        if self.respawn.hopeless:
            # Whoever still starts may do well, and then others are tried again.
            return [] if self.all else [NoWorkerStarts(self.respawn.hopeless)]
        staying = sum(not w.leaving for w in self.all.values())
        missing = self.wanted - staying + bool(self._retiring)
        # Where all others leave, one may always come: else nobody would serve until one has ended.
        missing = min(missing, max(self.wanted + 1 - len(self.all), not staying))
        actions: list[Action] = []
        while missing > 0 and self.respawn.may(now):
            self.all[self._next] = Worker(self._next, now)
            actions.append(Spawn(self._next))
            self._next += 1
            missing -= 1
        if missing > 0 and (pause := self.respawn.take_untold()) is not None:
            actions.append(StartsPaused(*pause, ready=len(self.serving)))
        return actions

    def database(self, *, up: bool, turned_away: bool) -> None:
        """The maintenance process has looked whether the database can be reached.

        That it lets nobody in after it had not answered, as while it starts, speaks for no session.
        """
        stood = self._reached or self._turned_away
        self._reached, self._turned_away = up, turned_away and stood
        for worker in self.all.values():
            worker.resume()

    def connected(self, number: int, backend: Backend) -> None:
        """A worker has another connection, on which nothing was done yet."""
        worker = self.all[number]
        worker.backends.append(backend)
        worker.cut_off = False

    def ready(self, number: int) -> list[Action]:
        """A worker has loaded the app; the one that it replaces may go."""
        self.all[number].ready = True
        self.respawn.ready()
        if self._retiring and len(self.serving) > self.wanted:
            return self.leave(next(iter(self._retiring)))
        return []

    # Who goes

    def failed(self, worker: Worker, now: float) -> None:
        """One that is gone had never become ready."""
        late = LATE.format(self._settings.start_timeout) if worker.late else None
        self.respawn.failed(now, late)

    def refused(self, number: int, error: str, now: float) -> None:
        """The system has not started one, which may pass."""
        self.gone(number, error)
        self.respawn.failed(now, REFUSED.format("workers", error))

    def retire(self, number: int) -> bool:
        """A worker asks to be replaced: it works on until another one is ready. False: known."""
        if self.all[number].leaving or number in self._retiring:
            return False
        self._retiring[number] = None
        return True

    def leave(self, number: int) -> list[Action]:
        """A worker gets nothing more, gives back what it has not started, and exits."""
        self._retiring.pop(number, None)
        worker = self.all[number]
        if worker.leaving:
            return []
        worker.leaving = True
        return [Send(number, Stop())]

    def leave_all(self) -> list[Action]:
        """Every worker ends after the request that it runs; the grace says until when.

        One that still loads the app reads nothing before it has, and has nothing to end.
        """
        self._ending = True
        loading = [w.number for w in self.all.values() if not w.ready and not w.chunks]
        told = [action for number in list(self.all) for action in self.leave(number)]
        return told + [Signal(number, signal.SIGTERM, SHUTDOWN) for number in loading]

    def resize(self, wanted: int) -> list[Action]:
        """Changes how many there should be; those too many end after what they run.

        Of more, the last come once those that still end have made room (`spawn_missing`).
        """
        self.wanted = wanted
        staying = [w for w in self.all.values() if not w.leaving]
        return [action for w in staying[wanted:] for action in self.leave(w.number)]

    def gone(self, number: int, cause: str) -> Worker:
        """A worker has ended: "signal SIGKILL", "exit code 1", or why it could not begin."""
        self._retiring.pop(number, None)
        worker = self.all.pop(number)
        if (counted := death_cause(worker, cause)) is not None:
            self.deaths[counted] += 1
        return worker

    def terminate(self, looks: Mapping[int, Running | None], now: float) -> list[Action]:
        """Asks what still runs to give up; `tick` asks again until it does."""
        self.terminating, self._told_again = True, now
        for number, worker in self.all.items():
            note_terminated(worker, looks.get(number), now)
        return [Signal(number, signal.SIGTERM, SHUTDOWN) for number in self.all]

    def cancel(
        self, asked: CancelAsked, looks: Mapping[int, Running | None], now: float
    ) -> list[Action]:
        """Ends that request and no other; nothing where it does not run at this look."""
        if self.terminating:
            return []
        chunks = {worker.number: worker.chunks for worker in self.all.values()}
        for number, running, record in at_work(chunks, looks.items()):
            if asked.means(request_id(record), running.chunk):
                return cancel(self.all[number], running, asked.reason, now)
        return []

    # Time

    def _stuck(self, worker: Worker, now: float) -> list[Action]:
        """A worker that was told to stop and has nothing left to do is given a while to end."""
        if not worker.leaving or worker.chunks or self._ending:
            return []
        if worker.ends_by is None:
            worker.ends_by = now + self._settings.stop_timeout
        if now < worker.ends_by:
            return []
        worker.ends_by = float("inf")
        return [Signal(worker.number, signal.SIGKILL, "did not stop in time")]

    def tick(self, looks: Mapping[int, Running | None], now: float) -> list[Action]:
        """Looks at what runs: overdue requests, workers that don't start, slow neighbours."""
        actions: list[Action] = []
        for worker in self.all.values():
            worker.look_at_suspension(now)
            running = looks.get(worker.number)
            if self.terminating:
                note_terminated(worker, running, now)
            elif not worker.ready:
                if now - worker.started_at > self._settings.start_timeout:
                    worker.late = True
                    late = f"did not start within {self._settings.start_timeout:g} s"
                    actions.append(Signal(worker.number, signal.SIGKILL, late))
            elif running is None:
                worker.terminated = None
                actions += self._stuck(worker, now)
            else:
                actions += overdue(worker, running, now, self._settings.kill_gap)
                if len(self.all) > 1 or any(chunk.due for chunk in worker.chunks):
                    actions += recall(worker, running, now)  # due rows could run in other instances
        if self.terminating and now - self._told_again >= TERM_AGAIN:
            self._told_again = now
            actions += [Signal(n, signal.SIGTERM, SHUTDOWN, again=True) for n in self.all]
        return actions
