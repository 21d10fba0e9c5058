"""A pool without processes: what the consumer's tests hand records to."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from feedback.contract.record import OFFSET, Record, record_size
from processing.ipc.frames import MaintenanceReady, ToMaintenance
from processing.pool.backlog import Backlog
from processing.pool.stats import PoolStats


class FakePool:
    """Finishes requests in `step`, all of them or at most so many; notes what it was given.

    Follows the `WorkerPool` protocol of the loop.
    """

    def __init__(self, on_submit: Callable[[Sequence[Record]], None] | None = None) -> None:
        self.database_up = True
        self.workers_start = True
        self.saturated = self.supplied = False
        self.per_step: int | None = None
        """Requests finished in one step; None: all of them."""
        self.keep = True
        """Whether to remember the records."""
        self.submitted: list[Record] = []
        self.queue: list[Record] = []
        self.waits: dict[tuple[str, int], Backlog] = {}
        """What waits of each partition."""
        self.in_hand_bytes = 0
        self.most_in_hand = 0
        self.steps = 0
        self.finished: list[Record] = []
        self.given_up: list[Record] = []
        self.let_go_of: list[tuple[tuple[str, int], ...]] = []
        self._on_submit = on_submit

    @property
    def in_hand(self) -> int:
        return len(self.queue)

    @property
    def held_back(self) -> int:
        return sum(backlog.requests for backlog in self.waits.values())

    @property
    def kept_back(self) -> int:
        return min(self.in_hand, sum(backlog.standing for backlog in self.waits.values()))

    def backlogs(self) -> dict[tuple[str, int], Backlog]:
        return self.waits

    @property
    def pending(self) -> bool:
        return bool(self.queue)

    def submit(self, records: Sequence[Record], size: int) -> None:
        if self._on_submit is not None:
            self._on_submit(records)
        if self.keep:
            self.submitted.extend(records)
        self.queue.extend(records)
        self.in_hand_bytes += size
        self.most_in_hand = max(self.most_in_hand, len(self.queue))

    def take_departed(self) -> tuple[list[Record], list[Record]]:
        found = self.finished, self.given_up
        self.finished, self.given_up = [], []
        return found

    def let_go(self, places: Mapping[tuple[str, int], int]) -> None:
        """Nothing of it has started here until it is done."""
        self.let_go_of.append(tuple(places))
        goes = [r[:2] in places and r[OFFSET] >= places[r[:2]] for r in self.queue]
        gone = [r for r, leaves in zip(self.queue, goes, strict=True) if leaves]
        self.given_up += gone
        self.queue = [r for r, leaves in zip(self.queue, goes, strict=True) if not leaves]
        self.in_hand_bytes -= sum(map(record_size, gone))

    @property
    def letting_go(self) -> bool:
        return False

    def step(self, timeout: float) -> None:
        self.steps += 1
        count = len(self.queue) if self.per_step is None else self.per_step
        done, self.queue = self.queue[:count], self.queue[count:]
        self.finished += done
        self.in_hand_bytes -= sum(map(record_size, done))
        if not done and timeout:
            time.sleep(timeout)


class FakeMaintenance:
    """A maintenance process that finds everything well."""

    def __init__(self) -> None:
        self.ready: MaintenanceReady | None = None
        self.frames: list[ToMaintenance] = []
        self.away = False

    def send(self, frame: ToMaintenance) -> bool:
        if not self.away:
            self.frames.append(frame)
        return not self.away


class FakeSupervisor(FakePool):
    """A pool with a life: starts, refuses, terminates, is killed; notes in which order.

    Follows the `ServicePool` protocol of the service.
    """

    def __init__(self, on_submit: Callable[[Sequence[Record]], None] | None = None) -> None:
        super().__init__(on_submit)
        self.maintenance = FakeMaintenance()
        self.types: list[str] = []
        self.fatal: str | None = None
        self.killed = 0
        self.killed_because = ""
        self.alive = 0
        self.calls: list[str] = []
        self.refused: list[Record] = []
        self.schema = MaintenanceReady("ok", "")
        self.claiming = True
        self.parks = True
        """What is refused is put away at once; otherwise it stays in hand for good."""
        self.stubborn = False
        """Workers run on when they are asked to end or to give up."""
        self._refusing = False
        self._selector = selectors.DefaultSelector()

    def running_requests(self) -> list[dict[str, Any]]:
        return []

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def start_maintenance(self) -> None:
        self.calls.append("maintenance")
        self.maintenance.ready = self.schema

    def start_workers(self) -> None:
        self.calls.append("workers")
        self.alive = 2 if self.workers_start else 0

    def stats(self) -> PoolStats:
        return PoolStats(
            workers=self.alive,
            workers_free=self.alive,
            queued=len(self.queue),
            running=0,
            in_hand=len(self.queue),
            deaths=0,
            database_up=self.database_up,
        )

    def submit(self, records: Sequence[Record], size: int) -> None:
        if "submit" not in self.calls:
            self.calls.append("submit")
        super().submit(records, size)

    def step(self, timeout: float) -> None:
        for key, _ in self._selector.select(0):
            key.data()
        if self._refusing and self.parks and not self.stubborn:
            self.refused += self.queue
            self._empty()
        if self.stubborn:
            time.sleep(timeout)
        else:
            super().step(timeout)

    def stop_claims(self) -> None:
        self.claiming = False

    def refuse_unstarted(self, code: str) -> None:
        self.calls.append(f"refuse {code}")
        self._refusing = True
        if not self.stubborn:
            self.alive = 0

    def terminate(self) -> None:
        self.calls.append("terminate")

    def kill(self, why: str = "") -> None:
        self.calls.append("kill")
        self.killed_because = why
        self.killed += self.alive
        self.alive = 0

    def give_up(self) -> list[dict[str, Any]]:
        return [{"offset": record[OFFSET]} for record in self.queue]

    def close(self, timeout: float) -> None:
        self.calls.append("close")

    def _empty(self) -> None:
        self.queue = []
        self.in_hand_bytes = 0
