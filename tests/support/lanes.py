"""Records and costs for lanes."""

from __future__ import annotations

from feedback.contract.record import Record
from processing.pool.worker_time import Costs


def record(offset: int, key: bytes | None = None, kind: str = "quick", size: int = 10) -> Record:
    return ("topic", 0, offset, 0, key, b"x" * size, [], kind, None)


def known_costs() -> Costs:
    """Costs of a quick type and of a slow one."""
    costs = Costs()
    costs.observe("quick", 1, 0.0001)
    costs.observe("slow", 1, 1.0)
    return costs
