"""An executor on the real database, with a work and a publish that remember."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from feedback.backend import Backend
from feedback.contract.record import Record
from feedback.status.status import StatusWrite
from processing import App
from processing.ipc.frames import Report, Suspect
from processing.logs import get_logger
from processing.settings import ExecutorSettings
from processing.worker.chunk_run import ChunkRun
from processing.worker.executor import Executor
from processing.worker.traced_runs import TracedRuns
from tests.support.queries import Queries


class FakeGate:
    """Remembers what was shown, and knows what runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shown: list[int | None] = []
        self.timeouts: list[float | None] = []
        self.running: int | None = None

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        self.shown.append(index)
        self.timeouts.append(timeout)
        self.running = index

    def clear(self) -> None:
        self.running = None


def chunk_run(
    records: Sequence[Record],
    number: int = 1,
    token: str = "t",
    suspect: Suspect | None = None,
    recalled: Sequence[int] = (),
    gate: FakeGate | None = None,
) -> ChunkRun:
    """A chunk of which some requests were recalled before it began."""
    gate = gate or FakeGate()
    chunk = ChunkRun(number, token, list(records), suspect, gate)
    chunk.keep([index for index in range(len(records)) if index not in recalled])
    chunk.recall()
    return chunk


class Bench:
    """Runs chunks and asks the database what came of them."""

    def __init__(self, app: App, url: str, schema: str, **settings: Any) -> None:
        self.url, self.schema = url, schema
        self._queries: Queries | None = None
        self.backends: list[Backend] = []
        """Of all connections of its executors."""
        self.statuses: list[dict[str, Any]] = []
        self.bumped: list[bool] = []
        self.ways: list[tuple[str, int, bool, str | None, bool]] = []
        """How statuses are written: id, ttl, bump, reply_to, final."""
        self.offset = 0
        self.number = 0
        app.start_worker()
        self.app = app
        self.executor = self.another(url, **settings)

    def another(self, url: str, runs: TracedRuns | None = None, **settings: Any) -> Executor:
        options = ExecutorSettings(schema=self.schema, **settings)
        return Executor(
            app=self.app, database_url=url, publish=self.publish, settings=options,
            connected=self.backends.append, log=get_logger("test"), runs=runs,
        )  # fmt: skip

    def publish(self, writes: list[StatusWrite]) -> None:
        self.statuses += [orjson.loads(w.value) for w in writes]
        self.bumped += [w.bump for w in writes]
        self.ways += [(w.id, w.ttl, w.bump, w.reply_to, w.final) for w in writes]

    def record(
        self, id: str | None, kind: str | None, payload: Any = None, key: bytes | None = None,
        **headers: str,
    ) -> Record:  # fmt: skip
        value = payload if isinstance(payload, bytes | None) else orjson.dumps(payload)
        pairs: list[tuple[str, bytes | None]] = [(n, v.encode()) for n, v in headers.items()]
        if id is not None:
            pairs.append(("ce_id", id.encode()))
        if kind is not None:
            pairs.append(("ce_type", kind.encode()))
        self.offset += 1
        return ("topic", 0, self.offset, 1_700_000_000_000, key, value, pairs, kind, None)

    def run(
        self, *records: Record, recalled: Sequence[int] = (), suspect: Suspect | None = None
    ) -> Report:
        self.number += 1
        token = f"token-{self.number}"
        return self.run_chunk(chunk_run(records, self.number, token, suspect, recalled))

    def run_chunk(self, chunk: ChunkRun) -> Report:
        """To its end, which it comes to here: none of its calls goes on by itself."""
        report = self.executor.begin(chunk)
        assert report is not None
        return report

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        # Not before: some ask another address than their executors.
        if self._queries is None:
            self._queries = Queries(self.url)
        return self._queries(statement, *values)

    def end_session(self) -> None:
        """Of its executor, whose latest connection is lost then."""
        pid, _ = self.backends[-1]
        assert self.query("SELECT pg_terminate_backend(%s, 10000)", pid) == [(True,)]

    def rows(self) -> dict[str, tuple[str, str]]:
        found = self.query(f"SELECT id, state, code FROM {self.schema}.requests")
        return {name: (state, code) for name, state, code in found}

    def effects(self) -> list[str]:
        return [r[0] for r in self.query(f"SELECT id FROM {self.schema}.effects ORDER BY id")]

    def letters(self) -> list[tuple[Any, ...]]:
        return self.query(f"SELECT reason, request_id FROM {self.schema}.dead_letters ORDER BY id")

    def state(self, id: str) -> tuple[str, str] | None:
        """The last status published of an id."""
        for status in reversed(self.statuses):
            if status["id"] == id:
                return status["state"], status["code"]
        return None


@contextmanager
def bench_with_effects(app: App, url: str, schema: str) -> Iterator[Bench]:
    """With a table `effects`; its executor is closed at the end."""
    made = Bench(app, url, schema)
    made.query(f"CREATE TABLE {schema}.effects (id text)")
    yield made
    made.executor.close()
