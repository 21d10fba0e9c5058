"""What the pool shows of itself."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    cut_off: bool = False
    """No worker reaches the database."""
    workers_wanted: int = 0
    at_once: dict[str, int] = field(default_factory=dict)
    """Type -> the most that may be in flight, or still is, of what instances share."""
    needs: dict[str, int] = field(default_factory=dict)
    """Type -> how many could be in flight, of what instances share."""
    limits_number: int = 0
    """Of the limits that hold."""
    worker_states: dict[str, int] = field(default_factory=dict)
    """State -> workers in it."""
    deaths_by_cause: dict[str, int] = field(default_factory=dict)
    """Of workers that were not told to end."""
