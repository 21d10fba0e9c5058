"""Real children on the real database and Redis, without Kafka in front of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import orjson
import redis

from consumer.config.settings import Settings
from consumer.service.wiring import make_pool
from feedback.contract.record import Record
from feedback.status.redis_store import RedisStatusStore
from processing.cluster.cancellations import Cancellations
from stack import Stack
from tests.support.queries import Queries

WAIT = 90.0


class Workers:
    """A supervisor that a test turns by hand."""

    def __init__(
        self, stack: Stack, schema: str, prefix: str, *, instance: str = "test", **settings: Any
    ) -> None:
        self.schema = schema
        self.database = settings.get("database_url", stack.database)
        values: dict[str, Any] = {
            "app": "tests.support.fragile_app:app",
            "workers": 1,
            "ordering": "none",
            "database_url": self.database,
            "database_schema": schema,
            "redis_url": stack.redis,
            "redis_prefix": prefix,
        }
        self.supervisor = make_pool(Settings(**values | settings), instance)
        self.table = f"{schema}.effects"
        self.query = Queries(self.database)
        self.query(f"CREATE TABLE IF NOT EXISTS {self.table} (id text)")
        self.store = RedisStatusStore(stack.redis, prefix=prefix, timeout=30.0)
        self._stack, self._prefix = stack, prefix
        self.seen: dict[int, float] = {}
        """Pid of each worker that there was: when it was first seen."""
        self._offset = 0

    def start(self, timeout: float = WAIT) -> None:
        """Starts all children, and waits until all are ready or none can be."""
        self.supervisor.start_maintenance()
        self.until(lambda: self.supervisor.maintenance.ready)
        self.supervisor.start_workers()
        self.until(lambda: self.supervisor.fatal or self.ready, timeout)

    @property
    def ready(self) -> bool:
        """All workers are."""
        stats = self.supervisor.stats()
        return stats.workers == self.supervisor._pool.settings.workers

    @property
    def pids(self) -> list[int]:
        """Worker processes that there are now."""
        processes = self.supervisor._processes
        return [processes.pid(number) for number in processes.numbers]

    def turn(self) -> None:
        self.supervisor.step(0.01)
        for pid in self.pids:
            self.seen.setdefault(pid, time.monotonic())

    def until(self, condition: Callable[[], object], timeout: float = WAIT) -> None:
        """Turns until something is so."""
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, self._show()
            self.turn()

    def _show(self) -> str:
        return f"{self.supervisor.stats()} {self.states()} {self.supervisor.fatal}"

    def record(self, id: str, do: str, kind: str = "fragile", **headers: str) -> Record:
        payload = orjson.dumps({"table": self.table, "do": do})
        pairs = {"ce_id": id, "ce_type": kind, **headers}
        self._offset += 1
        encoded: list[tuple[str, bytes | None]] = [
            (name, value.encode()) for name, value in pairs.items()
        ]
        return ("topic", 0, self._offset, 0, None, payload, encoded, kind, None)

    def submit(self, *ids: str, do: str = "", kind: str = "fragile", **headers: str) -> None:
        self.supervisor.submit([self.record(i, do, kind, **headers) for i in ids])

    def cancel(self, id: str, reason: str, chunk: int | None = None) -> None:
        """As an operator asks for it."""
        with redis.Redis.from_url(self._stack.redis) as client:
            Cancellations(client, self._prefix).ask("test", id, reason, chunk)

    @property
    def asked(self) -> bool:
        """The maintenance process has still to read what it was asked to cancel."""
        with redis.Redis.from_url(self._stack.redis) as client:
            return bool(client.exists(f"{self._prefix}:cancel:test"))

    def finish(self, timeout: float = WAIT) -> None:
        """Turns until nothing is in hand."""
        self.until(lambda: self.supervisor.in_hand == 0, timeout)

    def warm(self, count: int = 5, kind: str = "fragile") -> None:
        """Has requests run, so that the type is known to be quick and shares chunks."""
        self.submit(*[f"warm-{self._offset}-{n}" for n in range(count)], kind=kind)
        self.finish()

    def states(self) -> dict[str, tuple[Any, ...]]:
        """State and code of each row of the journal, but for those of `warm`."""
        rows = self.query(f"SELECT id, state, code FROM {self.schema}.requests")
        return {row[0]: row[1:] for row in rows if not row[0].startswith("warm")}

    def status(self, id: str) -> tuple[str, str] | None:
        """State and code of a request as Redis has it."""
        [status] = self.store.read([id])
        return None if status is None else (str(status.state), status.code)

    def check_effects(self) -> None:
        """One effect for each request that is done, and none besides."""
        effects = [row[0] for row in self.query(f"SELECT id FROM {self.table}")]
        rows = self.query(f"SELECT id FROM {self.schema}.requests WHERE state = 'done'")
        assert sorted(effects) == sorted(row[0] for row in rows)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.supervisor.close(5)
        self.store.close()
        self.query.close()
