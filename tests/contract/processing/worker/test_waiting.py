"""What the executor does with requests that wait, on real PostgreSQL."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg
import pytest

from feedback.journal.claims import Want, claim
from processing import App, Reject, Request, Retry, RetryPolicy
from processing.handlers.decoder import Message, RawMessage
from processing.worker.executor import Suspect
from stack import Stack
from tests.support.executor import Bench
from tests.support.moves import forbidden_moves, watch_moves

INSTANCE = "local"
FAR = "2035-01-01T00:00:00Z"


def make_app(schema: str, answers: dict[str, Any], ran: list[Any]) -> App:  # noqa: C901 - handlers
    app = App()
    picky = RetryPolicy(attempts=3, base=50, jitter=0, on=(OSError,))

    def note(request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
        ran.append((request.id, request.attempt))
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        answer = answers.get(request.id)
        if isinstance(answer, BaseException):
            raise answer

    @app.handler("pay", retries=2)
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        note(request, tx)
        return "paid"

    @app.handler("once")
    def once(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("picky", retries=picky)
    def choosy(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("later", not_before=lambda p: datetime.fromisoformat(p["at"]))
    def later(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("count", coalesce=lambda p: p.get("sku"), window=20, window_cap=30, retries=1)
    def count(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("pure", effect="none", retries=1)
    def pure(payload: Any, request: Request[Any]) -> str:
        ran.append((request.id, request.attempt))
        if isinstance(answer := answers.get(request.id), BaseException):
            raise answer
        return "computed"

    @app.handler("call", effect="external", retries=1)
    def call(payload: Any, request: Request[Any]) -> str:
        ran.append((request.id, request.attempt))
        if isinstance(answer := answers.get(request.id), BaseException):
            raise answer
        return "called"

    @app.handler("order")
    def order(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        first = request.follow_up("once", {"of": request.id})
        request.follow_up("once", {}, at=datetime(2035, 1, 1, tzinfo=UTC), request_id="named")
        note(request, tx)
        return first

    @app.handler("renewed")
    def renewed(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        """While it runs the clerk renews its lease, and commits when the row is to be finished."""
        note(request, tx)
        clerk = answers["clerk"]
        clerk.execute(f"UPDATE {schema}.requests SET lease_until = now() WHERE id = 'a'".encode())
        threading.Timer(0.3, clerk.commit).start()

    @app.handler("recount")
    def recount(payload: Any, request: Request[Any]) -> list[str]:
        at = datetime(2035, 1, 1, tzinfo=UTC)
        names = [request.follow_up("count", {"sku": "f"}) for _ in range(2)]
        return [*names, request.follow_up("count", {"sku": "f"}, at=at)]

    if answers.get("novel"):

        @app.handler("novel")
        def novel(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
            note(request, tx)

    @app.decoder("foreign")
    def foreign(message: RawMessage) -> Message:
        return Message(
            "f-1", "once", {"n": 1}, not_before=datetime(2035, 1, 1, tzinfo=UTC), reference="r"
        )

    return app


class Queue(Bench):
    """An executor, and a clerk that claims when it is told to."""

    order = 0

    def due(self, *ids: str) -> None:
        """Makes rows due now, whatever they wait for."""
        self.query(
            f"UPDATE {self.schema}.requests SET due_at = now(), not_before = CASE WHEN not_before"
            " > now() THEN now() ELSE not_before END WHERE id = ANY(%s) AND state = 'waiting'",
            list(ids),
        )

    def claimed(self, *ids: str) -> list[Any]:
        self.due(*ids)
        self.order += 1
        with psycopg.connect(self.url, autocommit=True) as connection:
            haul = claim(connection, INSTANCE, Want(self.order, 100), schema=self.schema)
        found = {dict(row.record[6] or ())["ce_id"].decode(): row for row in haul.rows}  # type: ignore[union-attr]
        return [found[name].record for name in ids]

    def again(self, *ids: str) -> None:
        """Claims these and runs them."""
        self.run(*self.claimed(*ids))

    def row(self, id: str) -> dict[str, Any]:
        names = (
            "state, code, attempt, used, run, crashes, due_at, not_before, token, lease_until,"
            " superseded_by, finished_at, payload, headers, fingerprint, kafka_offset, partition"
        )
        rows = self.query(f"SELECT {names} FROM {self.schema}.requests WHERE id = %s", id)
        return dict(zip(names.replace(" ", "").split(","), rows[0], strict=True)) if rows else {}

    def timeline(self, id: str) -> list[tuple[Any, ...]]:
        return self.query(
            f"SELECT run, code FROM {self.schema}.attempts WHERE request_id = %s ORDER BY run", id
        )

    def told(self, id: str) -> dict[str, Any]:
        return next(s for s in reversed(self.statuses) if s["id"] == id)


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def queue(
    stack: Stack, schema: str, answers: dict[str, Any], ran: list[Any]
) -> Iterator[Queue]:  # fmt: skip
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text)".encode())
    watch_moves(stack.database, schema)
    made = Queue(make_app(schema, answers, ran), stack.database, schema, instance=INSTANCE)
    yield made
    made.executor.close()
    made.app.stop_worker()
    assert forbidden_moves(stack.database, schema) == []


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


def test_attempts_are_used_up_and_the_request_is_dead(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["a"] = ValueError("no")
    queue.run(queue.record("a", "pay", {}), queue.record("b", "pay", {}))
    assert queue.rows() == {"a": ("waiting", "handler_error"), "b": ("done", "ok")}
    assert queue.told("a")["attempt"] == 1
    assert queue.row("a")["due_at"] > datetime.now(UTC)
    queue.again("a")
    assert queue.told("a")["attempt"] == 2
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["code"], row["attempt"], row["run"]) == (
        *("dead", "handler_error"), 3, 3
    )  # fmt: skip
    assert (row["due_at"], row["payload"]) == (None, b"{}")
    assert queue.timeline("a") == [(n, "handler_error") for n in (1, 2, 3)]
    # An attempt that fails among others is undone and entered once more by itself.
    assert (list(dict.fromkeys(ran)), queue.effects()) == (
        [("a", 1), ("b", 1), ("a", 2), ("a", 3)],
        ["b"],
    )
    assert "ValueError" in queue.told("a")["error"]
    queue.run(queue.record("a", "pay", {}))
    assert queue.told("a")["state"] == "dead", "a resend of a dead one is answered"


def test_a_later_attempt_succeeds(queue: Queue, answers: dict[str, Any], ran: list[Any]) -> None:
    answers["a"] = OSError("away")
    queue.run(queue.record("a", "picky", {}))
    wait = (queue.row("a")["due_at"] - datetime.now(UTC)).total_seconds()
    assert 45 < wait <= 50
    del answers["a"]
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["attempt"], row["run"], row["payload"]) == ("done", 2, 2, None)
    assert queue.told("a")["attempt"] == 2


def test_exceptions_that_are_not_worth_it_end_it_at_once(
    queue: Queue, answers: dict[str, Any]
) -> None:
    answers["a"] = ValueError("no")
    queue.run(queue.record("a", "picky", {}))
    assert queue.rows() == {"a": ("dead", "handler_error")}


def test_the_handler_says_when_and_whether_it_counts(queue: Queue, answers: dict[str, Any]) -> None:
    at = datetime(2030, 5, 1, tzinfo=UTC)
    answers["a"] = Retry(at=at, reason="closed", counts=False)
    answers["once"] = Retry(after=10, counts=False)
    answers["plain"] = Retry(after=10)
    answers["no"] = Reject("no_funds")
    queue.run(
        queue.record("a", "pay", {}), queue.record("once", "once", {}),
        queue.record("plain", "once", {}), queue.record("no", "pay", {}),
    )  # fmt: skip
    assert queue.rows() == {
        "a": ("waiting", "retry"), "once": ("waiting", "retry"),
        "plain": ("failed", "retry"), "no": ("rejected", "no_funds"),
    }  # fmt: skip
    row = queue.row("a")
    assert (row["due_at"], row["attempt"], row["used"]) == (at, 1, 0)
    assert queue.told("a")["reason"] == "closed"
    queue.again("a")
    queue.again("a")
    assert (queue.row("a")["attempt"], queue.row("a")["run"]) == (1, 3)


def test_an_unknown_type_waits_for_a_newer_version(queue: Queue, ran: list[Any]) -> None:
    queue.run(queue.record("a", "novel", {"n": 1}))
    row = queue.row("a")
    assert (row["state"], row["code"], row["fingerprint"]) == ("waiting", "unknown_type", None)
    for _ in range(8):
        queue.again("a")
    assert queue.row("a")["state"] == "waiting"

    queue.run(queue.record("b", "strange", {}))
    for _ in range(9):
        queue.again("b")
    assert queue.row("b")["state"] == "dead"
    newer = make_app(queue.schema, {"novel": True}, ran)
    newer.start_worker()
    queue.app, older = newer, queue.executor
    queue.executor = queue.another(queue.url, instance=INSTANCE)
    older.close()
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["attempt"], ran) == ("done", 10, [("a", 10)])
    assert row["fingerprint"] is not None


def test_a_claim_of_somebody_else_is_left_alone(queue: Queue, ran: list[Any]) -> None:
    queue.run(queue.record("a", "once", {}, ce_notbefore=FAR))
    (record,) = queue.claimed("a")
    queue.query(f"UPDATE {queue.schema}.requests SET token = 'other:1'")
    report = queue.run(record)
    assert (ran, queue.row("a")["state"], report.returned) == ([], "waiting", [])
    queue.query(f"UPDATE {queue.schema}.requests SET token = NULL, state = 'cancelled'")
    queue.run(record)
    assert ran == []
    queue.query(f"DELETE FROM {queue.schema}.requests")
    queue.query(f"DELETE FROM {queue.schema}.moves")
    queue.run(record)
    assert ran == [], "without a row there is no claim"


def test_an_expired_request_does_not_run_late(queue: Queue, ran: list[Any]) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=0.4)).isoformat()
    queue.run(queue.record("a", "once", {}, ce_notbefore=FAR, ce_expirytime=soon))
    (record,) = queue.claimed("a")
    while datetime.now(UTC) < datetime.fromisoformat(soon):
        pass
    queue.run(record)
    assert (queue.rows(), ran) == ({"a": ("rejected", "expired")}, [])


def test_a_suspect_claim_runs_again_and_its_second_crash_kills_it(
    queue: Queue, ran: list[Any]
) -> None:
    queue.run(*(queue.record(n, "once", {}, ce_notbefore=FAR) for n in ("a", "b", "c")))
    first, second, third = queue.claimed("a", "b", "c")
    queue.run(first, suspect=Suspect(None, None, "x", 1))
    assert (queue.row("a")["state"], queue.row("a")["crashes"]) == ("done", 1)
    queue.run(second, suspect=Suspect("worker_died", None, "x", 2))
    row = queue.row("b")
    assert (row["state"], row["code"], row["crashes"]) == ("dead", "worker_died", 2)
    queue.run(third, suspect=Suspect("timeout", None, "x", 1))
    assert queue.rows()["c"] == ("failed", "timeout")
    queue.run(first, suspect=Suspect("worker_died", None, "x", 2))
    assert queue.row("a")["state"] == "done", "what it had committed stays"


def test_a_timeout_is_an_attempt_and_a_kill_at_shutdown_is_none(queue: Queue) -> None:
    record = queue.record("a", "pay", {})
    queue.run(record, suspect=Suspect("timeout", None, "x", 1))
    row = queue.row("a")
    assert (row["state"], row["code"], row["used"]) == ("waiting", "timeout", 1)
    (again,) = queue.claimed("a")
    queue.run(again, suspect=Suspect("shutdown", None, "x", 0))
    row = queue.row("a")
    assert (row["state"], row["code"], row["used"], row["token"]) == ("waiting", "parked", 1, None)
    assert row["due_at"] <= datetime.now(UTC) + timedelta(seconds=1)
    queue.run(queue.record("b", "pay", {}), suspect=Suspect("shutdown", None, "x", 0))
    assert queue.rows()["b"] == ("waiting", "parked")


def test_pure_computation_has_a_row_only_while_it_waits_or_is_dead(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    queue.run(queue.record("ok", "pure", {}))
    assert queue.rows() == {}
    answers["a"] = ValueError("no")
    queue.run(queue.record("a", "pure", {}))
    assert queue.rows() == {"a": ("waiting", "handler_error")}
    queue.run(queue.record("a", "pure", {}))
    assert ran == [("ok", 1), ("a", 1)], "the copy is answered"
    del answers["a"]
    queue.again("a")
    assert queue.rows() == {}
    assert (queue.told("a")["state"], queue.told("a")["result"]) == ("done", "computed")
    assert (queue.told("a")["attempt"], ran[-1]) == (2, ("a", 2))
    answers["b"] = ValueError("no")
    queue.run(queue.record("b", "pure", {}))
    queue.again("b")
    assert queue.rows() == {"b": ("dead", "handler_error")}


def test_external_effects_wait_only_where_nothing_happened(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["a"], answers["b"] = Retry(after=9), ValueError("half way")
    queue.run(queue.record("a", "call", {}), queue.record("b", "call", {}))
    assert queue.rows() == {"a": ("waiting", "retry"), "b": ("in_doubt", "handler_error")}
    row = queue.row("a")
    assert (row["token"], row["lease_until"], row["used"]) == (None, None, 1)
    queue.again("a")
    assert queue.rows()["a"] == ("dead", "retry")
    del answers["a"]
    queue.run(queue.record("c", "call", {}, ce_notbefore=FAR))
    queue.again("c")
    row = queue.row("c")
    assert (row["state"], row["run"], row["attempt"]) == ("done", 1, 1)


def test_the_newest_of_a_reference_runs(queue: Queue, ran: list[Any]) -> None:
    def at(second: int) -> str:
        return f"2026-01-01T00:00:{second:02d}Z"

    queue.run(
        queue.record("a", "count", {"sku": "s"}, ce_time=at(1)),
        queue.record("b", "count", {"sku": "s"}, ce_time=at(2)),
        queue.record("x", "count", {"sku": "t"}, ce_time=at(1)),
        queue.record("free", "count", {}, ce_time=at(1)),
    )
    assert queue.rows() == {
        "a": ("superseded", "superseded"), "b": ("waiting", "coalescing"),
        "x": ("waiting", "coalescing"), "free": ("done", "ok"),
    }  # fmt: skip
    assert queue.told("a")["superseded_by"] == "b"
    queue.run(queue.record("c", "count", {"sku": "s"}, ce_time=at(3)))
    assert (queue.row("b")["state"], queue.row("b")["superseded_by"]) == ("superseded", "c")
    assert queue.told("b")["superseded_by"] == "c"
    queue.run(queue.record("late", "count", {"sku": "s"}, ce_time=at(0)))
    assert queue.row("late")["superseded_by"] == "c"
    (running,) = queue.claimed("c")
    queue.run(queue.record("d", "count", {"sku": "s"}, ce_time=at(4)))
    assert queue.row("c")["state"] == "waiting", "a running one is never touched"
    queue.run(running)
    assert (queue.row("c")["state"], queue.row("d")["state"]) == ("done", "waiting")
    queue.run(queue.record("older", "count", {"sku": "s"}, ce_time=at(2)))
    queue.again("d")
    queue.run(queue.record("oldest", "count", {"sku": "s"}, ce_time=at(1)))
    assert queue.row("oldest")["superseded_by"] == "d", "an older one never runs after it"
    assert [name for name, _ in ran] == ["free", "c", "d"]


def test_the_window_starts_again_up_to_its_cap(queue: Queue) -> None:
    queue.run(queue.record("a", "count", {"sku": "s"}))
    wait = (queue.row("a")["due_at"] - datetime.now(UTC)).total_seconds()
    assert 15 < wait <= 20
    queue.query(
        f"UPDATE {queue.schema}.requests SET window_start = now() - interval '25 s'"
    )  # fmt: skip
    queue.run(queue.record("b", "count", {"sku": "s"}))
    wait = (queue.row("b")["due_at"] - datetime.now(UTC)).total_seconds()
    assert wait <= 5


def test_a_failed_attempt_gives_way_to_a_newer_one(queue: Queue, answers: dict[str, Any]) -> None:
    queue.run(queue.record("a", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:01Z"))
    (running,) = queue.claimed("a")
    queue.run(queue.record("b", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:02Z"))
    answers["a"] = ValueError("no")
    queue.run(running)
    assert queue.row("a")["superseded_by"] == "b"
    answers["b"] = ValueError("no")
    queue.again("b")
    assert (queue.row("b")["state"], queue.row("b")["used"]) == ("waiting", 1)


def test_a_time_of_its_own_never_coalesces(queue: Queue) -> None:
    queue.run(*(queue.record(n, "count", {"sku": "s"}, ce_notbefore=FAR) for n in ("a", "b")))
    assert queue.rows() == {"a": ("waiting", "delayed"), "b": ("waiting", "delayed")}


def test_follow_ups_stand_and_fall_with_their_request(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["bad"] = ValueError("no")
    queue.run(queue.record("a", "order", {}), queue.record("bad", "order", {}))
    rows = queue.rows()
    first = queue.told("a")["result"]
    assert rows == {
        "a": ("done", "ok"), "bad": ("failed", "handler_error"),
        first: ("waiting", "follow_up"), "named": ("waiting", "follow_up"),
    }  # fmt: skip
    assert queue.told(first)["state"] == "waiting"
    assert queue.row("named")["due_at"] == datetime(2035, 1, 1, tzinfo=UTC)
    queue.run(queue.record("c", "order", {}))
    assert len(queue.rows()) == 6, "one that is there already is not asked for twice"
    queue.again(first)
    assert (queue.row(first)["state"], queue.row(first)["run"]) == ("done", 1)


def test_a_decoded_message_waits_as_a_request(queue: Queue, ran: list[Any]) -> None:
    raw = ("foreign", 3, 44, 1_700_000_000_000, None, b"raw", [("a", b"\xff")], None)
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
    queue.run(("topic", 0, 99, 1_700_000_000_000, None, structured, pairs, None))
    assert orjson.loads(queue.row("s")["payload"]) == {"n": 2}
    queue.again("s")
    assert ran[-1] == ("s", 1)


def test_it_says_when_the_next_one_is_due(queue: Queue, answers: dict[str, Any]) -> None:
    assert queue.run(queue.record("a", "once", {})).due_in is None
    answers["b"] = Retry(after=7, counts=False)
    due_in = queue.run(queue.record("b", "once", {}), queue.record("c", "order", {})).due_in
    assert due_in == pytest.approx(0, abs=0.5)
    due_in = queue.run(queue.record("b2", "once", {}, ce_notbefore=FAR)).due_in
    assert due_in is not None
    assert due_in > 1e6


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


def test_a_follow_up_waits_for_its_own_time_or_coalesces(queue: Queue, ran: list[Any]) -> None:
    queue.run(queue.record("p", "recount", {}))
    first, second, timed = orjson.loads(queue.query(
        f"SELECT result::text FROM {queue.schema}.requests WHERE id = 'p'"
    )[0][0])  # fmt: skip
    queue.again(first, second)
    states = {queue.row(name)["state"] for name in (first, second)}
    assert states == {"waiting", "superseded"}
    queue.again(timed)
    assert queue.row(timed)["state"] == "done", "a time of its own never coalesces"


def test_a_lease_that_is_renewed_meanwhile_does_not_have_the_chunk_redone(
    queue: Queue, ran: list[Any], answers: dict[str, Any]
) -> None:
    queue.run(queue.record("a", "renewed", {}, ce_notbefore=FAR))
    (record,) = queue.claimed("a")
    with psycopg.connect(queue.url) as clerk:
        answers["clerk"] = clerk
        queue.run(record)
    assert (queue.row("a")["state"], [name for name, _ in ran]) == ("done", ["a"])


def test_a_producer_with_a_clock_ahead_does_not_silence_its_reference(queue: Queue) -> None:
    queue.run(queue.record("ahead", "count", {"sku": "s"}, ce_time="2999-01-01T00:00:00Z"))
    queue.again("ahead")
    queue.run(queue.record("next", "count", {"sku": "s"}, ce_time="2998-01-01T00:00:00Z"))
    assert queue.row("next")["state"] == "waiting"
