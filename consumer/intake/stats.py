"""What the loop shows of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopStats:
    """A frozen look at the loop."""

    assigned: int
    held: int
    """Records that wait for their commit or its answer."""
    paused: tuple[str, ...]
    """Why intake is closed; empty while it is open."""
    joined: bool
    """The group counts this process as a member, with or without partitions."""
    counts: dict[str, int]
    """Records and commits by outcome."""
    missing_topics: tuple[str, ...] | None
    """Configured topics that do not exist; None as long as that is not known."""
    lost: dict[str, int]
    """Kind of record -> how many were dropped after their commit was sent."""
