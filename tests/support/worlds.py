"""The same requests in a sandbox and on a real database: what became of them, to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg
from pydantic import BaseModel

from feedback.client.message import draft
from feedback.client.pending import Submission
from feedback.client.send_clock import SendClock
from feedback.contract.record import Record
from feedback.journal.claimed_rows import record_of
from feedback.journal.claims import ClaimRequest, claim
from feedback.journal.doubts import doubts_to_ask
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusWrite
from processing import App, Done, NotDone, Reject, Request, Retry, RetryPolicy, Unknown
from processing.ipc.frames import ASK, NO_ORDER, Suspect
from processing.settings import CHECK_AFTER
from processing.testing import FakeCursor, Sandbox
from tests.support.executor import Bench

COLUMNS = (
    "id", "type", "state", "code", "attempt", "run", "used", "crashes", "lost_claims", "resends",
    "fingerprint", "result", "reason", "key", "reference", "superseded_by", "coalesce_key",
    "effect", "own_fingerprint", "status_ttl", "payload", "asked_by",
)  # fmt: skip
"""What rows have in common whatever the time; where they waited for it, too."""


class Amount(BaseModel):
    amount: int


class World(Protocol):
    """Where requests are sent and run."""

    def send(self, kind: str, payload: Any, **options: Any) -> str: ...

    def raw(self, value: bytes | None, *headers: tuple[str, bytes]) -> None: ...

    def run(self) -> None:
        """All that is due."""
        ...

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due then runs."""
        ...

    def books(self) -> dict[str, Any]:
        """Rows, failed runs, dead letters, statuses, effects."""
        ...


def world_app(tell: Callable[[Any, str], None]) -> App:  # noqa: C901 - handlers
    """Handlers that do as their payloads say; `tell` writes an effect."""
    app = App()
    steady = RetryPolicy(attempts=3, base=10, jitter=0)

    def act(payload: Mapping[str, Any], request: Request[Any]) -> str:
        if payload.get("fail", 0) >= request.attempt:
            raise ValueError("boom")
        if payload.get("reject"):
            raise Reject("no_funds", "empty")
        if payload.get("retry", 0) >= request.attempt:
            raise Retry(after=30, reason="busy", counts=payload.get("counts", True))
        return f"did {request.id}"

    @app.handler("once")
    def once(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        tell(tx, request.id)
        return act(payload, request)

    @app.handler("again", retries=steady)
    def again(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        tell(tx, request.id)
        return act(payload, request)

    @app.handler("typed")
    def typed(payload: Amount) -> int:
        return payload.amount

    @app.handler("pure", effect="none", retries=steady)
    def pure(payload: dict[str, Any], request: Request[Any]) -> str:
        return act(payload, request)

    @app.handler("call", effect="external", check=lambda request: request.payload["check"])
    def call(payload: Any, request: Request[Any]) -> str:
        return act(payload, request)

    asked_of = Counter[str]()

    def checked(request: Request[Any]) -> Done | NotDone | Unknown:
        asked_of[request.id] += 1
        if request.payload.get("unknown", 0) >= asked_of[request.id]:
            return Unknown()
        return Done("found") if request.payload.get("done") else NotDone()

    @app.handler("asked", effect="external", check=checked, retries=steady)
    def asked(payload: dict[str, Any], request: Request[Any]) -> str:
        return act(payload, request)

    @app.handler("newest", coalesce=lambda p: p["of"], window=60, retries=steady)
    def newest(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        tell(tx, request.id)
        return act(payload, request)

    @app.handler("own", fingerprint=lambda p: p["a"])
    def own(payload: dict[str, Any]) -> None: ...

    @app.handler("parent", retries=steady)
    def parent(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        kind, of = payload.get("then", "once"), payload.get("of", "parent")
        request.follow_up(kind, {"of": of}, request_id=f"child of {request.id}")
        return act(payload, request)

    @app.batch_handler("batch", retries=steady)
    def batch(requests: list[Request[dict[str, Any]]], tx: psycopg.Cursor[Any]) -> list[Any]:
        ends = {1: Reject("odd"), 3: Retry(after=5), 5: ValueError("boom")}
        if any(r.payload["n"] == 7 for r in requests):
            raise ValueError("all of them")
        return [ends.get(r.payload["n"], r.payload["n"]) for r in requests]

    return app


class SandboxWorld:
    """In memory."""

    def __init__(self) -> None:
        self.cursor = FakeCursor()
        app = world_app(lambda tx, name: tx.execute("effect", (name,)))
        self.sandbox = Sandbox(app, tx=self.cursor)

    def send(self, kind: str, payload: Any, **options: Any) -> str:
        return self.sandbox.client.submit(kind, payload, **options)

    def raw(self, value: bytes | None, *headers: tuple[str, bytes]) -> None:
        self.sandbox.send_raw(value, headers)

    def run(self) -> None:
        self.sandbox.run()

    def wait(self, seconds: float) -> None:
        self.sandbox.advance(seconds)

    def books(self) -> dict[str, Any]:
        rows, store = self.sandbox.requests(), self.sandbox.statuses
        ids = sorted(row["id"] for row in rows)
        return _books(
            [tuple(row[name] for name in COLUMNS) for row in rows],
            [(a["request_id"], a["run"], a["code"], a["error"]) for a in self.sandbox.attempts],
            [(a["reason"], a["request_id"], a["detail"]) for a in self.sandbox.dead_letters],
            store.read(ids),
            [params[0] for _, params in self.cursor.statements],
        )


class _Telling(Bench):
    """Its statuses are where they replace each other as in Redis."""

    def __init__(self, app: App, url: str, schema: str) -> None:
        self.store = MemoryStatusStore()
        super().__init__(app, url, schema)

    def publish(self, writes: list[StatusWrite]) -> None:
        self.store.write(writes)


class DatabaseWorld:
    """On PostgreSQL, with the executor of a worker and the statements of a claim."""

    def __init__(self, url: str, schema: str) -> None:
        insert = f"INSERT INTO {schema}.effects VALUES (%s)"
        app = world_app(lambda tx, name: tx.execute(insert, (name,)))
        self.bench = _Telling(app, url, schema)
        self.bench.query(f"CREATE TABLE {schema}.effects (id text)")
        self._records: list[Record] = []
        self._clock, self._order = SendClock(), 0
        self._sent: dict[str, Submission] = {}

    def send(self, kind: str, payload: Any, **options: Any) -> str:
        message, submission = draft(
            kind, payload, topic="sandbox", reply_to=None, clock=self._clock,
            earlier=self._sent.get, **options,
        )  # fmt: skip
        self._sent[message.id] = submission
        self._arrive(message.timestamp, message.key, message.value, list(message.headers))
        return message.id

    def raw(self, value: bytes | None, *headers: tuple[str, bytes]) -> None:
        self._arrive(int(datetime.now(UTC).timestamp() * 1000), None, value, list(headers))

    def _arrive(self, at: int, key: bytes | None, value: bytes | None, headers: Any) -> None:
        kind = dict(headers).get("ce_type")
        self.bench.offset += 1
        self._records.append(
            ("sandbox", 0, self.bench.offset, at, key, value, headers,
             None if kind is None else kind.decode(), None)
        )  # fmt: skip

    def run(self) -> None:
        for _ in range(100):
            records, self._records = self._records, []
            records = records or self._claimed()
            for record in records:
                self.bench.run(record)
            asked = [] if records else self._doubts()
            for record in asked:
                self.bench.run(record, suspect=Suspect(ASK, (), ()))
            if not records and not asked:
                return
        raise AssertionError("there is always something due")

    def wait(self, seconds: float) -> None:
        """What waits, or is in doubt, has done so for so long."""
        self.run()
        names = ("due_at", "not_before", "window_start", "created_at", "finished_at")
        earlier = ", ".join(f"{n} = {n} - make_interval(secs => {seconds})" for n in names)
        open_ = "state IN ('waiting', 'in_doubt')"
        self.bench.query(f"UPDATE {self.bench.schema}.requests SET {earlier} WHERE {open_}")
        self.run()

    def _claimed(self) -> list[Record]:
        self._order += 1
        want = ClaimRequest(self._order, 100)
        with psycopg.connect(self.bench.url, autocommit=True) as connection:
            return [r for r, _ in claim(connection, "local", want, schema=self.bench.schema).rows]

    def _doubts(self) -> list[Record]:
        types = [name for name, handler in self.bench.app.handlers.items() if handler.check]
        with psycopg.connect(self.bench.url, autocommit=True) as connection:
            found = doubts_to_ask(connection, types, 100, CHECK_AFTER, schema=self.bench.schema)
        return [record_of(row, NO_ORDER) for row in found]

    def books(self) -> dict[str, Any]:
        schema, query = self.bench.schema, self.bench.query
        names = ", ".join("result::text" if n == "result" else n for n in COLUMNS)
        rows = query(f"SELECT {names} FROM {schema}.requests")
        return _books(
            rows,
            query(f"SELECT request_id, run, code, error FROM {schema}.attempts"),
            query(f"SELECT reason, request_id, detail FROM {schema}.dead_letters"),
            self.bench.store.read(sorted(row[0] for row in rows)),
            [name for (name,) in query(f"SELECT id FROM {schema}.effects")],
        )


def _books(
    rows: list[Any], attempts: list[Any], letters: list[Any], statuses: list[Status | None],
    effects: list[str],
) -> dict[str, Any]:  # fmt: skip
    told = [s for s in statuses if s is not None]
    return {
        "rows": {row[0]: dict(zip(COLUMNS, map(_plain, row), strict=True)) for row in rows},
        "attempts": sorted((*row[:3], _first(row[3])) for row in attempts),
        "letters": sorted(letters, key=str),
        "statuses": {
            s.id: (s.v, s.state, s.code, s.attempt, s.fingerprint, s.result, _first(s.error),
                   s.reason, s.superseded_by, s.retry_at is None)
            for s in told
        },
        "effects": sorted(effects),
    }  # fmt: skip


def _first(error: str | None) -> str | None:
    """Without the place, which is the same, but not its line."""
    return None if error is None else error.partition(" (")[0]


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    return value.replace(" ", "") if isinstance(value, str) and value[:1] in "{[" else value
