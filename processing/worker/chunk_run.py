"""Records that a worker runs together, and what has become of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from feedback.contract.counts import Count, plain
from feedback.contract.record import Record
from processing.ipc.frames import Report, Suspect
from processing.worker.task import Task


class Work(Protocol):
    """What the worker knows of a chunk: the shared slot, and what was recalled."""

    def start(self, index: int, timeout: float | None) -> bool:
        """A request is about to run; False when it was recalled and must be left alone."""

    def start_batch(self, indices: Sequence[int], timeout: float | None) -> list[int]:
        """Requests are about to run together; returns those that were not recalled."""

    def keep(self, indices: Sequence[int]) -> list[int]:
        """Requests end without a start; returns those that were not recalled before."""

    def finish(self) -> None:
        """No request runs any more."""


@dataclass(slots=True)
class Chunk:
    """Records to run together; with a suspect exactly one."""

    number: int
    token: str
    records: list[Record]
    suspect: Suspect | None = None


@dataclass(slots=True)
class Job:
    """A chunk on its way."""

    chunk: Chunk
    work: Work
    returned: list[int] = field(default_factory=list)
    """Indices that were not run, for no fault of theirs."""
    unclear: list[int] = field(default_factory=list)
    """Indices whose COMMIT may have landed."""
    times: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Kind -> (requests, seconds in handlers)."""
    database_up: bool = True
    due_in: float | None = None
    """Seconds until the first request that was written down to wait is due."""
    settled: set[int] = field(default_factory=set)
    """Indices that need nothing more."""
    decided: set[int] = field(default_factory=set)
    """Indices whose outcome stands, whatever their handler would do: it need only be written."""
    again: set[int] = field(default_factory=set)
    """Indices that are run once more, alone, after the connection broke under them."""
    counts: Counter[Count] = field(default_factory=Counter)

    def open(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of `tasks` that need something more."""
        return [t for t in tasks if t.index not in self.settled]

    def finish(self, backend: tuple[int, str] | None) -> Report:
        """The report; counts as plain text, since it crosses the channel."""
        return Report(
            chunk=self.chunk.number,
            returned=self.returned,
            unclear=self.unclear,
            times=self.times,
            counts=plain(self.counts),
            database_up=self.database_up,
            backend=backend,
            due_in=self.due_in,
        )

    def settle(self, tasks: Iterable[Task]) -> None:
        """These have ended: counts and measures them."""
        times, counts = self.times, self.counts
        for task in tasks:
            final = task.final or task.outcome
            if final is not None:
                counts[Count(task.envelope.type, final.state, final.code)] += 1
            if task.started is not None:
                count, seconds = times.get(task.kind, (0, 0.0))
                times[task.kind] = (count + 1, seconds + task.seconds)
            self.settled.add(task.index)

    def wait_until(self, due: datetime | None, now: datetime) -> None:
        """A request was written down to wait until then."""
        if due is not None:
            seconds, so_far = max(0.0, (due - now).total_seconds()), self.due_in
            self.due_in = seconds if so_far is None else min(seconds, so_far)

    def give_back(self, tasks: Iterable[Task]) -> None:
        """These were not run, for no fault of theirs."""
        indices = [t.index for t in tasks]
        self.returned += indices
        self.settled.update(indices)
