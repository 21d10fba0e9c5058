"""What is plain is written down as it would be by the way that all the others take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from feedback.contract.record import Record
from feedback.journal.migrations import migrate
from processing import App, Reject, Request
from processing.ipc.frames import Report
from processing.worker import effect_none, transaction
from processing.worker.plain import is_plain
from processing.worker.task import Task
from tests.support.executor import Bench
from tests.support.own_database import OwnDatabase

RECENT = datetime(2025, 1, 1, tzinfo=UTC)
"""After the times that the messages give."""
PLAIN = {
    "one", "two", 'thr"e\\é 😀', "own", "other", "reply", "early", "late", "header", "timeless",
    "batch 0", "batch 1", "batch 2", "pure", "pure, own",
}  # fmt: skip


def give_up(payload: Any) -> Any:
    """Raises what the payload asks for."""
    match payload:
        case {"reject": code}:
            raise Reject(code, "no")
        case {"raise": text}:
            raise ValueError(text)
    return payload


def make_app(schema: str) -> App:
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        give_up(payload)
        if isinstance(payload, dict) and "then" in payload:
            request.follow_up(payload["then"], {}, request_id=f"after {request.id}")
        return payload.get("return") if isinstance(payload, dict) else payload

    @app.handler("own", fingerprint=lambda payload: payload["of"], status_ttl=7)
    def own(payload: Any) -> Any:
        return payload

    @app.handler("ünï")
    def other(payload: Any) -> None:
        return None

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]]) -> list[Any]:
        return [r.payload for r in requests]

    @app.handler("pure", effect="none")
    def pure(payload: Any) -> Any:
        return give_up(payload)

    app.handler("pure own", effect="none", fingerprint=lambda _: "x", status_ttl=7)(other)

    return app


def records(bench: Bench) -> list[Record]:
    made = [
        bench.record("one", "pay", {"return": {"a": [1, "ü", None, 1.5]}}, key=b"\x00\xff"),
        bench.record("two", "pay", {"return": 'a "text"'}, key=b""),
        bench.record('thr"e\\é 😀', "pay", {}),
        bench.record("nul", "pay", {"return": "\0"}),
        bench.record("text", "pay", b"x" * 40, **{"content-type": "text/plain"}),
        bench.record("own", "own", {"of": "this"}),
        bench.record("other", "ünï", {"a": 1}, key="ü".encode()),
        bench.record("reply", "pay", {}, ce_replyto="channel"),
        bench.record("reference", "pay", {}, ce_reference="order 7"),
        bench.record("early", "pay", {}, ce_time="1970-01-01T00:00:00.000001Z"),
        bench.record("late", "pay", {}, ce_time="9999-12-31T23:59:59Z"),
        bench.record("header", "pay", {}, other="thing"),
        bench.record("no", "pay", {"reject": "no_funds"}),
        bench.record("failed", "pay", {"raise": "boom"}),
        bench.record("more", "pay", {"then": "ünï"}),
        bench.record("pure", "pure", 5, ce_replyto="channel"),
        bench.record("pure, own", "pure own", {"of": "this"}),
        bench.record("pure, no", "pure", {"reject": "no_funds"}),
        bench.record("pure, failed", "pure", {"raise": "boom"}),
        bench.record("unknown", "unheard", 5),
        *(bench.record(f"batch {n}", "batch", n) for n in range(3)),
    ]
    timeless = bench.record("timeless", "pay", {})
    made.append((*timeless[:3], -1, *timeless[4:]))
    return [*made, made[0], bench.record("one", "pay", {"return": "else"})]


def is_recent(value: object) -> bool:
    return isinstance(value, datetime) and value > RECENT


def run(
    database: OwnDatabase, schema: str, judge: Callable[[Task], bool], patch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], list[tuple[Any, ...]], Report]:
    """What stands in the journal after a chunk, what was told and how, what was reported."""
    for module in (transaction, effect_none):
        patch.setattr(module, "is_plain", judge)
    migrate(database.url, schema)
    bench = Bench(make_app(schema), database.url, schema, results=True)
    bench.query(f"CREATE TABLE {schema}.effects (id text)")
    report = bench.run(*records(bench))
    bench.executor.close()
    with psycopg.connect(database.url, row_factory=dict_row) as connection:
        found = {
            table: connection.execute(f"SELECT * FROM {schema}.{table}".encode()).fetchall()
            for table in ("requests", "attempts", "dead_letters", "results")
        }
    ends = {row["id"]: row["finished_at"] for row in found["requests"]}
    for status in bench.statuses:
        at = datetime.fromisoformat(status.pop("at"))
        status.pop("retry_at", None)
        # One that was answered from its row has its own time.
        assert ends.get(status["id"], at) in {at, None} or status["id"] == "one", status
    for rows in found.values():
        for row in rows:
            row.update({name: "now" for name, value in row.items() if is_recent(value)})
    for row in found["results"]:
        del row["id"]  # the order among different requests
    # A row that waits keeps its status until after its time, in whole seconds from now on.
    ways = [(name, round(ttl, -2), *others) for name, ttl, *others in bench.ways]
    return found, list(zip(bench.statuses, ways, strict=True)), report


def test_its_rows_and_statuses_are_those_of_the_general_way(
    own_database: OwnDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: list[str] = []

    def judged(task: Task) -> bool:
        if is_plain(task):
            plain.append(task.envelope.id)
            return True
        return False

    found, told, report = run(own_database, "plain", judged, monkeypatch)
    found_too, told_too, report_too = run(own_database, "general", lambda _: False, monkeypatch)

    assert {*plain} == PLAIN
    for table, rows in found.items():
        assert sorted(rows, key=str) == sorted(found_too[table], key=str)
    assert sorted(told, key=str) == sorted(told_too, key=str)
    assert report.counts == report_too.counts
    assert {kind: n for kind, (n, _) in report.times.items()} == {
        kind: n for kind, (n, _) in report_too.times.items()
    }
