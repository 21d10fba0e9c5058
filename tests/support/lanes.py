"""Records and costs for lanes, and what a worker takes of them."""

from __future__ import annotations

from feedback.contract.record import OFFSET, Record
from processing.pool.chunk import Chunk
from processing.pool.lanes import Lanes
from processing.pool.worker_time import Costs


def record(offset: int, key: bytes | None = None, kind: str = "quick", size: int = 10) -> Record:
    return ("topic", 0, offset, 0, key, b"x" * size, [], kind, None)


def known_costs() -> Costs:
    """Costs of a quick type and of a slow one."""
    costs = Costs()
    costs.observe("quick", 1, 0.0001)
    costs.observe("slow", 1, 1.0)
    return costs


def take(lanes: Lanes, number: int = 1, worker: int = 1, limit: int = 500) -> Chunk:
    """The next chunk: of quick ones, else one that goes alone."""
    chunk = Chunk(number, worker)
    if not lanes.take_quick(chunk, limit):
        lanes.take_alone(chunk)
    return chunk


def offsets(chunk: Chunk) -> list[int]:
    """Of its records, in their order."""
    return [r[OFFSET] for r in chunk.records]
