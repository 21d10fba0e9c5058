"""Requests that wait for a time of their own."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from processing import App, Done, NotDone, Request, Unknown
from processing.ipc.frames import Suspect
from processing.worker import task as reading
from stack import Stack
from tests.support.executor import Bench
from tests.support.queue import FAR, Queue


def test_a_delayed_request_waits_runs_once_when_due_and_its_resends_are_answered(
    queue: Queue, ran: list[Any]
) -> None:
    record = queue.record("a", "once", {"n": 1}, key=b"k", ce_notbefore=FAR, extra="x")
    queue.run(record)
    row = queue.row("a")
    assert (row["state"], row["code"], row["attempt"], row["run"]) == ("waiting", "delayed", 1, 0)
    assert row["due_at"] == row["not_before"] == datetime(2035, 1, 1, tzinfo=UTC)
    assert (row["payload"], row["finished_at"]) == (b'{"n":1}', None)
    told = queue.told("a")
    assert (told["state"], told["retry_at"], told["v"]) == ("waiting", FAR, "000003")
    queue.run(record)
    assert queue.told("a")["state"] == "waiting"
    assert ran == []
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["run"], row["due_at"], row["token"]) == ("done", 1, None, None)
    assert (row["partition"], row["kafka_offset"]) == (0, record[2]), "its first message's place"
    queue.run(record)
    assert (ran, queue.effects()) == ([("a", 1)], ["a"])
    assert queue.told("a")["v"] == "000019"


def test_a_function_of_the_payload_delays(queue: Queue, ran: list[Any]) -> None:
    queue.run(
        queue.record("a", "later", {"at": FAR}),
        queue.record("b", "later", {"at": "2000-01-01T00:00:00Z"}),
        queue.record("c", "later", {"at": "2000-01-01T00:00:00"}),
        queue.record("d", "later", {"at": "nonsense"}),
        queue.record("e", "later", {"at": "2999-01-01T00:00:00Z"}),
    )
    assert queue.rows() == {
        "a": ("waiting", "delayed"), "b": ("done", "ok"), "c": ("failed", "handler_error"),
        "d": ("failed", "handler_error"), "e": ("failed", "handler_error"),
    }  # fmt: skip
    assert "ten years" in queue.told("e")["error"]


def test_an_expired_request_does_not_run_late(queue: Queue, ran: list[Any]) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=0.4)).isoformat()
    queue.run(queue.record("a", "once", {}, ce_notbefore=FAR, ce_expirytime=soon))
    (record,) = queue.claimed("a")
    while datetime.now(UTC) < datetime.fromisoformat(soon):
        pass
    queue.run(record)
    assert (queue.rows(), ran) == ({"a": ("rejected", "expired")}, [])


def test_a_decoded_message_waits_as_a_request(queue: Queue, ran: list[Any]) -> None:
    raw = ("foreign", 3, 44, 1_700_000_000_000, None, b"raw", [("a", b"\xff")], None, None)
    queue.run(raw)
    row = queue.row("f-1")
    assert (row["state"], row["payload"]) == ("waiting", b'{"n":1}')
    headers = {n: v and base64.b64decode(v) for n, v in row["headers"]}
    assert headers["ce_reference"] == b"r"
    queue.again("f-1")
    assert ran == [("f-1", 1)]
    structured = orjson.dumps(
        {"specversion": "1.0", "id": "s", "type": "once", "notbefore": FAR, "data": {"n": 2}}
    )
    pairs: Any = [("content-type", b"application/cloudevents+json")]
    queue.run(("topic", 0, 99, 1_700_000_000_000, None, structured, pairs, None, None))
    assert orjson.loads(queue.row("s")["payload"]) == {"n": 2}
    queue.again("s")
    assert ran[-1] == ("s", 1)


def test_a_row_that_nobody_who_knows_its_type_has_seen_is_held_back_first(
    queue: Queue, ran: list[Any]
) -> None:
    """Parked rows, retried messages, follow-ups: the type's own delay and reference still hold."""

    def park(name: str, kind: str, payload: str, second: int) -> None:
        queue.query(
            f"INSERT INTO {queue.schema}.requests (id, type, state, code, run, effect, topic,"
            " partition, kafka_offset, produced_at, payload, headers, due_at) VALUES (%s, %s,"
            " 'waiting', 'parked', 0, 'transaction', 't', 0, 1, %s, %s, '[]', now())",
            name, kind, datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC), payload.encode(),
        )  # fmt: skip

    park("later", "later", '{"at": "2035-01-01T00:00:00Z"}', 0)
    park("old", "count", '{"sku": "s"}', 1)
    park("new", "count", '{"sku": "s"}', 2)
    queue.again("later", "new", "old")
    assert queue.rows() == {
        "later": ("waiting", "delayed"), "new": ("waiting", "coalescing"),
        "old": ("superseded", "superseded"),
    }  # fmt: skip
    assert (ran, queue.row("old")["superseded_by"]) == ([], "new")
    assert queue.row("later")["due_at"] == datetime(2035, 1, 1, tzinfo=UTC)
    assert (queue.row("new")["token"], queue.row("new")["used"]) == (None, 0)
    queue.run(queue.record("newest", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:03Z"))
    assert queue.row("new")["superseded_by"] == "newest"
    queue.again("newest", "later")
    assert sorted(name for name, _ in ran) == ["later", "newest"]
    assert queue.row("later")["attempt"] == 1


@pytest.mark.parametrize(
    "answer, state",
    [
        (Done("paid"), ("done", "ok")),
        (NotDone(), ("rejected", "expired")),
        (Unknown(), ("in_doubt", "handler_error")),
    ],
)
def test_a_call_in_doubt_is_asked_for_though_its_request_has_expired(
    stack: Stack,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: Done | NotDone | Unknown,
    state: tuple[str, str],
) -> None:
    """That it is too late to start it says nothing of what was started in time."""
    app, entered = App(), []

    @app.handler("charge", effect="external", check=lambda request: answer)
    def charge(payload: Any, request: Request[Any]) -> Any:
        entered.append(request.id)
        raise OSError("cut off")

    bench = Bench(app, stack.database, schema)
    doubted, lost = (bench.record(name, "charge", 1, ce_expirytime=FAR) for name in ("d", "l"))
    bench.run(doubted)
    bench.run(lost)
    bench.query(f"UPDATE {schema}.requests SET state = 'running' WHERE id = 'l'")
    monkeypatch.setattr(reading.time, "time", lambda: datetime(2036, 1, 1, tzinfo=UTC).timestamp())
    bench.run(doubted)
    bench.run(lost, suspect=Suspect(None, (), (f"token-{bench.number - 1}",)))
    assert bench.rows()["d"] == bench.state("d") == state
    found = {"in_doubt": ("in_doubt", "worker_died"), "rejected": ("failed", "worker_died")}
    assert bench.rows()["l"] == found.get(state[0], state)
    assert entered == ["d", "l"]
    bench.executor.close()
    bench.app.stop_worker()
