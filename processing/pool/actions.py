"""What the pool wants done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from feedback.backend import Backend
from feedback.contract.record import Record
from processing.ipc.frames import ToMaintenance, ToWorker
from processing.ipc.progress import Running


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
    again: bool = False
    """It was sent before, and the worker has not acted yet."""
    meant: Running | None = field(default=None, compare=False)
    """The request that it is about: not to be sent where another one runs by now."""
    seat: int | None = field(default=None, compare=False)
    """Where that one is, if it is a call."""


@dataclass(frozen=True, slots=True)
class NoWorkerStarts:
    """Nothing can run: end the service with this message."""

    message: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a frame to the maintenance process."""

    frame: ToMaintenance


@dataclass(frozen=True, slots=True)
class Died:
    """A worker died with work in hand; for the log."""

    worker: int
    cause: str
    suspects: int
    culprit: Record | None


@dataclass(frozen=True, slots=True)
class Unended:
    """A dead worker's database session does not end; for the log."""

    backend: Backend
    worker: int | None
    """Whose it was."""
    waiting: list[Record]
    """Its requests, and those behind them in their order."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A worker is to be replaced as soon as another one is ready; for the log."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class StartsPaused:
    """No worker is started for a while, though one is missing; for the log."""

    seconds: float
    deaths: int
    """One after the other, which is why."""
    ready: int
    """Workers that are there."""


ForLog: TypeAlias = Died | Unended | Replaced | StartsPaused
Action: TypeAlias = Spawn | Send | Signal | NoWorkerStarts | Tell | ForLog
