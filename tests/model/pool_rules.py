"""What holds of a pool: in every state, and once nothing is left to be done."""

from __future__ import annotations

from processing.pool.pool import Pool


class Violation(AssertionError):
    """An invariant does not hold."""


def in_every_state(pool: Pool) -> None:
    """A worker has the chunk that it runs and the next one; nobody takes out what is not in."""
    for worker in pool.workers.values():
        if len(worker.chunks) > 2:
            raise Violation(f"worker {worker.number} has {len(worker.chunks)} chunks")
    if pool.in_hand < 0:
        raise Violation(f"{pool.in_hand} in hand")


def at_rest(pool: Pool) -> None:
    """Nothing is kept for what has its end."""
    if pool.in_hand or len(pool.lanes):
        raise Violation(f"{pool.in_hand} left in hand, {len(pool.lanes)} in lanes")
    if pool.in_hand_bytes:
        raise Violation(f"{pool.in_hand_bytes} bytes left in hand")
