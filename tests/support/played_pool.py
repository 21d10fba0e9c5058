"""A pool whose workers exist only on paper."""

from __future__ import annotations

from typing import Any

from feedback.contract.record import NOWHERE, OFFSET, Record
from processing.ipc.frames import Report, RunChunk, WantRows
from processing.pool.actions import Died, Send, Spawn, Tell
from processing.pool.pool import Pool
from processing.settings import Ordering, PoolSettings

START = "2026-01-01 00:00:00+00"


def record(offset: int, key: bytes | None = None) -> Record:
    return ("topic", 0, offset, 0, key, b"{}", [("ce_id", b"r-%d" % offset)], "quick", None)


def due(number: int) -> Record:
    headers: list[tuple[str, bytes | None]] = [("ce_id", b"w-%d" % number)]
    return ("topic", NOWHERE, NOWHERE, 0, None, b"{}", headers, "quick", 1)


class Played:
    """A pool whose workers exist only on paper; worker n has backend n."""

    def __init__(self, workers: int, ordering: Ordering = "key") -> None:
        self.pool = Pool(
            PoolSettings(workers=workers, instance="i", ordering=ordering, max_due=1000)
        )
        self.pool.costs.observe("quick", 1, 0.0001)
        self.plan(0.0)

    def plan(self, now: float) -> list[Any]:
        """What is sent and told, once the workers are there that are wanted."""
        actions = self.pool.plan(now)
        for action in actions:
            if isinstance(action, Spawn):
                self.pool.crew.connected(action.worker, (action.worker, START))
                self.pool.ready(action.worker)
        if any(isinstance(action, Spawn) for action in actions):
            actions += self.pool.plan(now)
        return [action for action in actions if not isinstance(action, Spawn)]

    def sent(self, now: float) -> list[tuple[int, int, list[int]]]:
        """(worker, chunk, offsets)."""
        return [
            (a.worker, a.frame.number, [r[OFFSET] for r in a.frame.records])
            for a in self.plan(now)
            if isinstance(a, Send) and isinstance(a.frame, RunChunk)
        ]

    def report(self, worker: int, chunk: int, **fields: Any) -> None:
        plain = Report(chunk, [], [], {}, {}, database_up=True)
        self.pool.report(worker, plain._replace(**fields))

    def die(self, worker: int, now: float) -> None:
        (died,) = self.pool.died(worker, "signal SIGKILL", None, now)
        assert isinstance(died, Died)


def wants(pool: Pool, now: float) -> list[WantRows]:
    told = (action.frame for action in pool.ask(now) if isinstance(action, Tell))
    return [frame for frame in told if isinstance(frame, WantRows)]
