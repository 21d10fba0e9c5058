"""Messages that nobody can read, under the ids of requests that wait for their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psycopg
import pytest

from feedback import AsyncClient, Status, outbox
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route
from tests.support.outbox import Outbox
from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually

CALLED = "called"
AWAITED = "awaited"
ADDED = "added"
SEEN = 1.5
"""Seconds: a relay looks twice a second."""


def call_of(bench: Bench) -> Callable[[], Status]:
    payload = {"table": bench.table}
    return lambda: bench.client.call("effect", payload, request_id=CALLED, key="k", timeout=WAIT)


def awaited_call_of(bench: Bench) -> Callable[[], Status]:
    prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]

    async def call() -> Status:
        client = AsyncClient(bench.stack.kafka, bench.stack.redis, bench.topic, prefix=prefix)
        async with client:
            return await client.call(
                "effect", {"table": bench.table}, request_id=AWAITED, key="k", timeout=WAIT
            )

    return lambda: asyncio.run(call())


def test_what_is_said_of_them_ends_no_request(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema = f"{bench.schema}_outbox"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    with psycopg.connect(bench.database) as connection:
        migrate(connection, schema, [])
    box, prefix = Outbox(bench.database, schema), bench.environment["ONCEPOOL_REDIS_PREFIX"]
    route = Route(bench.topic, {"bootstrap.servers": bench.stack.kafka}, bench.stack.redis, prefix)
    everything = [CALLED, AWAITED, ADDED]
    bench.start()
    with ThreadPoolExecutor() as pool, Relay(bench.database, {"default": route}, schema=schema):
        with psycopg.connect(bench.database) as connection:
            paced = {"table": bench.table, "seconds": 50, "until": str(tmp_path / "goes on")}
            outbox.add(connection, "paced", paced, request_id="first", key="k")
            outbox.add(connection, "effect", {"table": bench.table}, request_id=ADDED, key="k")
        eventually(lambda: {row["state"] for row in box.rows()} == {"sent"}, WAIT)
        calls = [pool.submit(call) for call in (call_of(bench), awaited_call_of(bench))]
        eventually(lambda: None not in bench.statuses([CALLED, AWAITED]), WAIT)
        stranger = Raw(bench)
        for name in everything:
            stranger.send("other", {"ce_id": name.encode()}, b"{}")  # without a type
        malformed = [("failed", "malformed")] * len(everything)
        eventually(lambda: [bench.seen(name) for name in everything] == malformed, WAIT)
        wait(calls, SEEN)
        (tmp_path / "goes on").touch()
        assert [call.result(WAIT).state for call in calls] == ["done", "done"]
        ended = "SELECT id, state, code FROM :schema.finished WHERE id = 'added'"
        eventually(lambda: box.rows(ended), WAIT)
    assert box.rows(ended) == [{"id": ADDED, "state": "done", "code": "ok"}]
    letters = bench.query(f"SELECT id, reason FROM {bench.schema}.dead_letters ORDER BY id")
    assert len(letters) == len(everything)
    bench.check_books({"first", *everything})
    box.run("DROP SCHEMA :schema CASCADE")
    box.connection.close()
