"""A row that no relay sends, whose request fails meanwhile as somebody calls it under its id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from feedback import outbox
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route
from tests.support.outbox import Outbox
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

LATER = timedelta(seconds=2)
NAME = "order-17"


def test_the_failure_from_before_it_is_sent_does_not_end_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema = f"{bench.schema}_outbox"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    with psycopg.connect(bench.database) as connection:
        migrate(connection, schema, [])
    box, prefix = Outbox(bench.database, schema), bench.environment["ONCEPOOL_REDIS_PREFIX"]
    route = Route(bench.topic, {"bootstrap.servers": bench.stack.kafka}, bench.stack.redis, prefix)
    payload = {"table": f"{bench.schema}.late"}
    bench.start()
    with psycopg.connect(bench.database) as connection:
        outbox.add(connection, "effect", payload, request_id=NAME, key="k")
    failed = bench.client.call("effect", payload, request_id=NAME, key="k", timeout=WAIT)
    assert (failed.state, failed.code) == ("failed", "handler_error")
    bench.query(f"CREATE TABLE {bench.schema}.late (id text)")  # the cause is gone
    gate = tmp_path / "goes on"
    paced = {"table": bench.table, "seconds": 50, "until": str(gate)}
    bench.client.submit("paced", paced, request_id="first", key="k")
    eventually(lambda: datetime.now(UTC) > failed.at + LATER, WAIT)
    with Relay(bench.database, {"default": route}, schema=schema):
        eventually(lambda: [row["seen"] for row in box.rows()] != [None], WAIT)
        assert [row["state"] for row in box.rows()] == ["sent"]
        gate.touch()
        eventually(lambda: not box.rows(), WAIT)
    [row] = box.rows("SELECT state, sends FROM :schema.finished")
    assert row == {"state": "done", "sends": 1}
    assert bench.query(f"SELECT id FROM {bench.schema}.late") == [(NAME,)]
    box.run("DROP SCHEMA :schema CASCADE")
    box.connection.close()
