"""Result records, over a real outbox that goes away or whose statuses are old."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.client.result import Result
from feedback.contract.states import State
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import records
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import BatchMarks
from feedback.outbox.relay.database import RelayDatabase
from feedback.outbox.relay.loop import AnswerLoop, ReadingLoop
from feedback.outbox.relay.record_loop import RecordLoop
from feedback.outbox.relay.records import PATIENCE, KeptRecords
from feedback.outbox.relay.settling import Settling
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusFields, StatusWrite
from tests.support.asked import Asked
from tests.support.outbox import Outbox
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

POLICY = AnswerPolicy(100.0)


class Topic:
    """Read on from where it was polled, or once it was closed from what was committed."""

    away = None

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.read = self.committed = 0
        self.on_read: Callable[[], object] | None = None
        """Called once, before what was read is handed on."""

    def poll(self, timeout: float) -> list[Result]:
        time.sleep(min(timeout, 0.01))
        found = self.results[self.read :]
        if found and self.on_read is not None:
            self.on_read()
            self.on_read = None
        self.read += len(found)
        return found

    def position(self) -> Any:
        return [self.read]

    def commit(self, position: Any) -> None:
        [self.committed] = position

    def serve(self, database: str) -> None: ...

    def close(self) -> None:
        self.read = self.committed


def _sent(outbox_: Outbox, *ids: str) -> None:
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        outbox.add_many(connection, [("t", {}, {"request_id": id_}) for id_ in ids])
        database = RelayDatabase(connection, outbox_.schema, "default", POLICY)
        database.mark(BatchMarks([row["seq"] for row in outbox_.rows()], []))


def _states(outbox_: Outbox) -> dict[str, str]:
    rows = outbox_.rows("SELECT id, state FROM :schema.all_requests")
    return {row["id"]: row["state"] for row in rows}


def test_what_was_read_and_not_written_is_read_again_after_an_outage(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PATIENCE", 0.5)
    _sent(outbox_, "a")
    topic = Topic()
    settling = Settling(outbox_.schema, "default", None, POLICY, inbox=False)
    with Proxy.of(outbox_.url) as proxy:
        url = proxy.before(outbox_.url)
        topic.results = [Result("a", "t", State.DONE, "ok", None, datetime.now(UTC))]
        topic.on_read = proxy.cut
        loop = RecordLoop(url, "default", topic, settling)  # type: ignore[arg-type]
        loop.start()
        eventually(lambda: topic.read and loop.state.database)
        over = time.monotonic() + 1.0
        eventually(lambda: time.monotonic() > over)
        proxy.mend()
        eventually(lambda: topic.committed, 30)
        loop.stop()
        assert loop.join(30)
    assert _states(outbox_) == {"a": "done"}


def test_an_outbox_that_takes_no_writes_is_away_until_it_does(
    own_database: OwnDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though it answers whoever asks, it is tried at longer and longer intervals."""
    caplog.set_level("INFO", "oncepool.relay")
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", "outbox")
    with psycopg.connect(own_database.url) as connection:
        migrate(connection, "outbox", [])
    outbox_ = Outbox(own_database.url, "outbox")
    _sent(outbox_, "a")
    outbox_.connection.close()
    own_database.set_read_only(read_only=True)
    topic, store = Topic(), MemoryStatusStore()
    topic.results = [Result("a", "t", State.DONE, "ok", None, datetime.now(UTC))]
    settling = [Settling("outbox", "default", store, POLICY, inbox=False) for _ in range(2)]
    loops: list[ReadingLoop] = [
        RecordLoop(own_database.url, "default", topic, settling[0]),  # type: ignore[arg-type]
        AnswerLoop(own_database.url, "default", store, settling[1]),
    ]
    for loop in loops:
        loop.start()
    eventually(lambda: all(loop._outbox._breaker._backoff._tries > 1 for loop in loops), 60)
    assert all("read-only" in (loop.state.database or "") for loop in loops)
    assert "the outbox answers" not in caplog.text
    own_database.set_read_only(read_only=False)
    eventually(lambda: topic.committed, 60)
    eventually(lambda: all(loop.state.database is None for loop in loops), 60)
    for loop in loops:
        loop.stop()
    assert all(loop.join(30) for loop in loops)
    outbox_ = Outbox(own_database.url, "outbox")
    assert _states(outbox_) == {"a": "done"}
    outbox_.connection.close()


def test_a_result_too_large_for_a_record_is_waited_for_or_its_lack_is_told(
    outbox_: Outbox,
) -> None:
    _sent(outbox_, "a")
    record = Result("a", "t", State.DONE, "ok", None, datetime.now(UTC), result_omitted=True)
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        for store in (MemoryStatusStore(), None):
            assert _states(outbox_) == {"a": "sent"}  # where a status may come
            settling = Settling(outbox_.schema, "default", store, POLICY, inbox=True)
            assert settling.records(connection, [record]) == []
    [row] = outbox_.rows("SELECT state, result, error FROM :schema.inbox")
    assert (row["state"], row["result"]) == ("done", None)
    assert "the consumers' journal has it" in row["error"]


def test_a_result_too_large_for_a_record_is_not_waited_for_where_nothing_is_sent_again(
    outbox_: Outbox,
) -> None:
    """As where a relay was away for longer than statuses live, and than rows are sent again."""
    _sent(outbox_, "late", "standing", "lately")
    outbox_.run(
        "UPDATE :schema.requests SET sent_at = now() - interval '25 hours' WHERE id <> 'lately'"
    )
    now, store = datetime.now(UTC), MemoryStatusStore()
    fields = StatusFields("standing", "t", State.DONE, 1, "ok", 1, now, result=b"[1]")
    store.write([StatusWrite("standing", fields.encode(), 60)])
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=True)
    ids = ("late", "standing", "lately")
    records = [Result(id_, "t", State.DONE, "ok", None, now, result_omitted=True) for id_ in ids]
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        settling.records(connection, records)
    assert _states(outbox_) == {"late": "done", "standing": "done", "lately": "sent"}
    inbox = outbox_.rows("SELECT id, result, error IS NULL AS whole FROM :schema.inbox")
    assert {row["id"]: (row["result"], row["whole"]) for row in inbox} == {
        "late": (None, False),
        "standing": ([1], True),
    }


def test_records_of_another_application_under_the_same_ids_end_nothing(
    outbox_: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    """Which of the two comes later makes no difference."""
    _sent(outbox_, "a", "b")
    now = datetime.now(UTC)
    own = Result("a", "t", State.DONE, "ok", None, now)
    theirs = [Result(id_, "theirs", State.FAILED, "x", None, now) for id_ in ("a", "b")]
    settling = Settling(outbox_.schema, "default", None, POLICY, inbox=False)
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        assert settling.records(connection, [own, *theirs]) == []
    assert _states(outbox_) == {"a": "done", "b": "sent"}
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("1 result records left out, of other types")


def test_what_another_application_said_in_the_store_hides_no_record(outbox_: Outbox) -> None:
    _sent(outbox_, "a")
    now = datetime.now(UTC)
    store = MemoryStatusStore()
    fields = StatusFields("a", "theirs", State.FAILED, 1, code="x", attempt=1, at=now)
    store.write([StatusWrite("a", fields.encode(), 60)])
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=False)
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        settling.records(connection, [Result("a", "t", State.DONE, "ok", None, now)])
    assert _states(outbox_) == {"a": "done"}


def test_a_final_record_counts_more_than_a_status_of_one_in_work(outbox_: Outbox) -> None:
    """And than one that failed, or was in doubt, and was run or settled since."""
    stood = {
        "waiting": State.WAITING,
        **dict.fromkeys(("again", "seen", "retried"), State.FAILED),
        "settled": State.IN_DOUBT,
    }
    _sent(outbox_, "running", "other", "failed", "reopened", *stood)
    now, store = datetime.now(UTC), MemoryStatusStore()
    for row in outbox_.rows():
        state = stood.get(row["id"], State.RUNNING)
        print_ = b"x" * 16 if row["id"] == "other" else row["fingerprint"]
        fields = StatusFields(
            row["id"], "t", state, 1, code="ok", attempt=1, at=now, fingerprint=print_
        )
        if row["id"] == "seen":
            fields = fields._replace(code="database_unavailable")
            v = Status.decode(fields.encode()).v
            outbox_.run(f"UPDATE :schema.requests SET seen = '{v}' WHERE id = 'seen'")
        store.write([StatusWrite(row["id"], fields.encode(), 60)])
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=False)
    said = {
        "failed": (State.FAILED, 1), "reopened": (State.DEAD, -1), "retried": (State.DEAD, -1),
    }  # fmt: skip
    results = []
    for id_ in _states(outbox_):
        state, later = said.get(id_, (State.DONE, 1))
        results.append(Result(id_, "t", state, "x", None, now + timedelta(seconds=later)))
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        settling.records(connection, results)
    assert _states(outbox_) == {
        "running": "done",
        "waiting": "done",
        "other": "undeliverable",
        "failed": "sent",
        "reopened": "sent",
        "again": "done",
        "seen": "done",
        "retried": "failed",
        "settled": "done",
    }


def test_what_failed_does_not_stand_for_a_result_too_large_for_its_record(
    outbox_: Outbox,
) -> None:
    """Sent again it is answered with its result; where it is not sent again, its lack is told."""
    _sent(outbox_, "late", "lately", "running")
    now, store = datetime.now(UTC), MemoryStatusStore()
    outbox_.run(
        "UPDATE :schema.requests SET sent_at = now() - interval '25 hours' WHERE id = 'late'"
    )
    for id_ in _states(outbox_):
        state = State.RUNNING if id_ == "running" else State.FAILED
        fields = StatusFields(id_, "t", state, 1, code="timeout", attempt=1, at=now)
        store.write([StatusWrite(id_, fields.encode(), 60)])
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=False)
    told = [
        Result(id_, "t", State.DONE, "ok", None, now, result_omitted=True)
        for id_ in _states(outbox_)
    ]
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        settling.records(connection, told)
    assert _states(outbox_) == {"late": "done", "lately": "sent", "running": "sent"}


def test_a_record_ends_a_row_that_was_sent_and_goes_again(outbox_: Outbox) -> None:
    """As one that nobody has confirmed in time, though its broker had it. Nothing else of it."""
    asked = Asked(outbox_, "done", "shutdown", "never")
    outbox_.run("UPDATE :schema.requests SET state = 'unsent'")
    outbox_.run("UPDATE :schema.requests SET sent_at = NULL WHERE id = 'never'")
    now = datetime.now(UTC)
    told = [
        Result("done", "t", State.DONE, "ok", 1, now),
        Result("shutdown", "t", State.FAILED, "shutdown", None, now),
        Result("never", "t", State.DONE, "ok", 1, now),
    ]
    kept = asked.settling.records(asked.connection, told)
    assert {key.id for key in kept} == {"shutdown", "never"}
    assert {id_: row["state"] for id_, row in asked.rows().items()} == {
        "done": "done", "shutdown": "unsent", "never": "unsent",
    }  # fmt: skip


def test_a_record_is_kept_while_somebody_is_sending_its_row(outbox_: Outbox) -> None:
    """A relay that hangs has sent it, and not said so. What it leaves is sent by another."""
    asked = Asked(outbox_)
    asked.add("held", "free")
    shards = "SELECT shard FROM :schema.requests WHERE id = 'held'"
    [held] = outbox_.rows(shards)
    outbox_.run(f"UPDATE :schema.requests SET shard = ({held['shard']} + 1) % 64 WHERE id = 'free'")
    RelayDatabase(asked.connection, outbox_.schema, "default").prepare()
    kept = KeptRecords()
    kept.add(
        [Result(id_, "t", State.DONE, "ok", 1, datetime.now(UTC)) for id_ in ("held", "free")], 0.0
    )
    assert kept.fading(PATIENCE / 2 - 1) == []
    fading = kept.fading(PATIENCE - 1)
    assert {key.id for key in fading} == {"held", "free"}
    with psycopg.connect(outbox_.url) as sending:
        query = f"SELECT FROM :schema.shards WHERE shard = {held['shard']} FOR UPDATE"
        sending.execute(outbox_.sql(query).encode())
        kept.renew(asked.settling.on_their_way(asked.connection, fading), PATIENCE - 1)
    assert asked.settling.on_their_way(asked.connection, fading) == frozenset()
    assert [result.id for result in kept.look(PATIENCE + 1)] == ["held"]
    assert kept.look(2 * PATIENCE) == []
