"""What the workers run right now: their slots and seats, beside the chunks that the pool knows."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from processing.ipc.progress import Running
from processing.pool.actions import Signal
from processing.pool.pool import Pool
from processing.pool.running import running_requests
from processing.pool.worker_processes import WorkerProcesses


class AtWork:
    """Each look reads shared memory of the workers that it is about, and of no others."""

    def __init__(self, pool: Pool, processes: WorkerProcesses) -> None:
        self._pool = pool
        self._processes = processes

    @property
    def slots(self) -> dict[int, Running | None]:
        """What each worker runs beside calls."""
        return self._processes.looks(self._processes.numbers)

    @property
    def seats(self) -> dict[int, dict[int, Running | None]]:
        """What runs in the seats that are taken, by worker and seat."""
        return self._processes.look_at_seats(self._pool.calls.seats)

    def requests(self) -> list[dict[str, Any]]:
        """One row for each request that runs."""
        return self._requests(self._pool.workers)

    def meant_by(self, signal: Signal) -> dict[str, Any]:
        """What names the request a signal is about, or that its worker runs, in a log line."""
        call = self._pool.calls.facts_of(signal)
        return call or next(iter(self._requests([signal.worker])), {})

    def _requests(self, workers: Collection[int]) -> list[dict[str, Any]]:
        known, taken = self._pool.workers, self._pool.calls.seats
        chunks = {n: known[n].chunks for n in workers if n in known}
        seats = self._processes.look_at_seats({n: taken[n] for n in workers if n in taken})
        looks, at = self._processes.looks(workers), datetime.now(UTC)
        return running_requests(chunks, looks, time.monotonic(), at, seats)
