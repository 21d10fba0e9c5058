"""What the loop shows of itself."""

from __future__ import annotations

from dataclasses import dataclass

from consumer.intake.events import Place


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
    without_start: tuple[Place, ...]
    """Partitions that this instance has and does not read yet: nobody can say where to begin, as
    they have no leader, or their committed offset could not be read."""
    counts: dict[str, int]
    """Records and commits by outcome."""
    missing_topics: tuple[str, ...] | None
    """Configured topics that do not exist; None as long as that is not known."""
    lost: dict[str, int]
    """Kind of record -> how many were dropped after their commit was sent."""
