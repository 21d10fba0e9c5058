"""Times that rows and settings say, through `oncepool relay` and the whole service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from feedback import outbox
from tests.support.outbox import Outbox, new_outbox
from tests.support.relay_process import RelayProcess
from tests.support.service import WAIT, Bench
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

QUICK = [f"quick-{n}" for n in range(5)]
SILENCE = timedelta(minutes=10)
SETTINGS = {
    "ONCEPOOL_OUTBOX_RESEND_AFTER": f"{SILENCE.total_seconds():g}",
    "ONCEPOOL_OUTBOX_RESEND_AFTER_BY_TYPE": orjson.dumps({"effect": 0.2}).decode(),
    "ONCEPOOL_OUTBOX_MAX_SENDS": "2",
}
DELAY = 2.5


@pytest.fixture
def box(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    """An outbox beside the journal of `bench`."""
    schema = f"{bench.schema}_outbox"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    with new_outbox(bench.database, schema) as made:
        yield made
        made.run("DROP SCHEMA :schema CASCADE")


def relay(bench: Bench, tmp_path: Path, **more: str) -> RelayProcess:
    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": bench.database}
    return RelayProcess({**bench.environment, **place, **more}, tmp_path / "relay.log")


def add(bench: Bench, name: str, kind: str = "effect", **options: Any) -> None:
    payload = {"table": bench.table, "file": "/dev/null"}
    with psycopg.connect(bench.database) as connection:
        outbox.add(connection, kind, payload, request_id=name, **options)


def found(box: Outbox) -> dict[str, tuple[str, str | None, int]]:
    """State, code and sends of each."""
    rows = box.rows("SELECT * FROM :schema.all_requests")
    return {row["id"]: (row["state"], row["code"], row["sends"]) for row in rows}


def test_times_that_settings_and_rows_say_are_kept(
    bench: Bench, box: Outbox, tmp_path: Path
) -> None:
    """The second copies of quick ones are answered as well, and nothing else is sent twice."""
    add(bench, "expired", "noted", expires=timedelta(milliseconds=1))
    add(bench, "slow", "noted", expires=WAIT)
    with relay(bench, tmp_path, **SETTINGS) as one:
        ended = what_is_silent_is_unanswered_and_answered_late(bench, box, one)
        ended |= what_is_delayed_waits(bench, box)
        eventually(lambda: found(box) == ended, WAIT, lambda: f"{found(box)} {one.log}")
        assert one.stop() == 0
    eventually(lambda: bench.waiting() == 0, WAIT)
    bench.check_books(ended.keys() - {"expired"})


def what_is_silent_is_unanswered_and_answered_late(
    bench: Bench, box: Outbox, one: RelayProcess
) -> dict[str, tuple[str, str | None, int]]:
    """As the settings say, and by type; there is no consumer at first."""
    for name in QUICK:
        add(bench, name)
    waits = ("sent", None, 1)
    silent = dict.fromkeys(QUICK, ("unanswered", "no_answer", 2))
    silent |= {"slow": waits, "expired": waits}
    eventually(lambda: found(box) == silent, WAIT, lambda: f"{found(box)} {one.log}")
    [slow] = [row for row in box.rows() if row["id"] == "slow"]
    assert slow["next_at"] - slow["sent_at"] == SILENCE
    copies = Counter({name: sends for name, (_, _, sends) in silent.items()})
    assert Counter(ids(bench.stack, bench.topic)) == copies

    bench.start()
    answered = {name: ("done", "ok", sends) for name, sends in copies.items()}
    answered["expired"] = ("rejected", "expired", 1)
    eventually(lambda: found(box) == answered, WAIT, lambda: f"{found(box)} {one.log}")
    return answered


def what_is_delayed_waits(bench: Bench, box: Outbox) -> dict[str, tuple[str, str | None, int]]:
    """For its time, with the consumers, and what has come behind it does not."""
    add(bench, "delayed", "noted", delay=DELAY)
    add(bench, "at", "noted", not_before=datetime.now(UTC) + timedelta(seconds=DELAY))
    add(bench, "at once", "noted")
    due = {row["id"]: row["not_before"] for row in box.rows() if row["id"] in ("delayed", "at")}
    for name, time in due.items():
        assert bench.seen(name) == ("waiting", "delayed")
        [status] = bench.statuses([name])
        assert status is not None
        assert status.retry_at == time
        assert found(box)[name] == ("sent", None, 1)
    table = f"{bench.schema}.requests"

    def finished() -> dict[str, datetime]:
        return dict(bench.query(f"SELECT id, finished_at FROM {table} WHERE state = 'done'"))

    eventually(lambda: due.keys() <= finished().keys(), WAIT)
    at = finished()
    assert at["at once"] < min(due.values())
    assert all(at[name] >= time for name, time in due.items())
    return dict.fromkeys((*due, "at once"), ("done", "ok", 1))
