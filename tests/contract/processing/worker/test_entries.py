"""Whoever is entered again is given the request as it came, whatever was done to it before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
import psycopg
import pytest
from pydantic import BaseModel, field_validator

from processing import App, NotDone, Reject, Request, Retry
from stack import Stack
from tests.support.queue import Queue

SENT = {"cents": 1000, "kind": "rich", "at": "2001-01-01T00:00:00Z"}

Seen = list[tuple[str, Any, dict[str, Any]]]


class Payment(BaseModel):
    """Valid as often as `VALID` says."""

    cents: int

    @field_validator("cents")
    @classmethod
    def _is_valid(cls, cents: int) -> int:
        if cents in VALID:
            VALID[cents] -= 1
            if VALID[cents] < 0:
                raise ValueError("too late")
        return cents


VALID: dict[int, int] = {}


def spoil(payload: dict[str, Any]) -> dict[str, Any]:
    """What it held, of which nothing is left."""
    held = dict(payload)
    payload.clear()
    return held


def break_once(tx: psycopg.Cursor[Any], how: str, broken: list[str]) -> None:
    if how in broken:
        return
    broken.append(how)
    if how == "cut":
        with psycopg.connect(broken[0], autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [tx.connection.info.backend_pid])
        tx.execute("SELECT 1")
    tx.execute(f"DO $$ BEGIN RAISE 'x' USING ERRCODE = '{how}'; END $$")


def make_app(seen: Seen, errors: Seen, broken: list[str]) -> App:  # noqa: C901 - handlers
    app = App()

    def entered(request: Request[Any]) -> dict[str, Any]:
        held = spoil(request.payload)
        seen.append((request.id, held, dict(request.headers)))
        request.headers.clear()
        return held

    @app.handler("book")
    def book(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        if payload.get("bad"):
            raise ValueError("bad")
        if entered(request)["kind"] == "refused":
            raise Reject("refused")
        if request.id in ("cut", "40001"):
            break_once(tx, request.id, broken)

    @app.handler("no-request")
    def no_request(payload: dict[str, Any], tx: psycopg.Cursor[Any]) -> None:
        seen.append(("", spoil(payload), {}))
        break_once(tx, "40001", broken)

    @app.handler("model")
    def model(payload: Payment, tx: psycopg.Cursor[Any]) -> None:
        payload.cents += 100
        seen.append(("", payload.cents, {}))
        break_once(tx, "40001", broken)

    @app.batch_handler("models")
    def models(requests: list[Request[Payment]], tx: psycopg.Cursor[Any]) -> list[None]:
        for request in requests:
            request.payload.cents += 100
            seen.append((request.id, request.payload.cents, {}))
        break_once(tx, "40P01", broken)
        return [None for _ in requests]

    def not_done(request: Request[Any]) -> NotDone:
        entered(request)
        return NotDone()

    @app.handler("call", effect="external", check=not_done)
    def call(payload: dict[str, Any], request: Request[Any]) -> None:
        if request.id not in broken:
            broken.append(request.id)
            raise ValueError("half way")
        entered(request)

    def at(payload: dict[str, Any]) -> datetime:
        return datetime.fromisoformat(spoil(payload)["at"])

    def mark(payload: dict[str, Any]) -> Any:
        return spoil(payload)["cents"]

    def reference(payload: dict[str, Any]) -> str:
        return str(spoil(payload)["kind"])

    @app.handler("later", not_before=at, fingerprint=mark)
    def later(payload: dict[str, Any], request: Request[Any]) -> None:
        entered(request)

    @app.handler("count", coalesce=reference)
    def count(payload: dict[str, Any], request: Request[Any]) -> None:
        entered(request)

    @app.handler("again", retries=3)
    def again(payload: dict[str, Any], request: Request[Any]) -> None:
        entered(request)
        raise Retry(after=50)

    @app.handler("fails", effect="none")
    def fails(payload: dict[str, Any], request: Request[Any]) -> None:
        entered(request)
        raise ValueError("no")

    @app.on_error
    def report(error: BaseException, request: Request[Any]) -> None:
        errors.append((request.id, request.payload, request.headers))

    return app


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def errors() -> Seen:
    return []


@pytest.fixture
def queue(stack: Stack, schema: str, seen: Seen, errors: Seen) -> Iterator[Queue]:
    VALID.clear()
    made = Queue(make_app(seen, errors, [stack.database]), stack.database, schema)
    yield made
    made.executor.close()


def test_after_a_neighbour_that_failed(queue: Queue, seen: Seen) -> None:
    sent = SENT | {"kind": "refused"}
    queue.run(
        queue.record("a", "book", SENT, b"1", tenant="acme"),
        queue.record("b", "book", sent, b"2", tenant="acme"),
        queue.record("c", "book", {"bad": True}, b"3"),
    )
    assert seen.count(("a", SENT, {"tenant": "acme"})) == 2
    assert set(queue.rows().values()) == {
        ("done", "ok"), ("rejected", "refused"), ("failed", "handler_error"),
    }  # fmt: skip
    assert [name for name, *_ in seen] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("id", ["cut", "40001"])
def test_after_a_transaction_that_was_lost(queue: Queue, seen: Seen, id: str) -> None:
    queue.run(queue.record(id, "book", SENT, tenant="acme"))
    assert seen == [(id, SENT, {"tenant": "acme"})] * 2
    assert queue.rows() == {id: ("done", "ok")}


@pytest.mark.parametrize("kind, held", [("no-request", SENT), ("model", 1100)])
def test_of_a_handler_that_takes_no_request(queue: Queue, seen: Seen, kind: str, held: Any) -> None:
    queue.run(queue.record("a", kind, SENT))
    assert [payload for _, payload, _ in seen] == [held] * 2
    assert queue.rows() == {"a": ("done", "ok")}


def test_of_a_batch(queue: Queue, seen: Seen) -> None:
    """One whose payload is valid no more ends by itself."""
    VALID[7] = 1
    queue.run(
        queue.record("a", "models", SENT, b"1"),
        queue.record("b", "models", {"cents": 7}, b"2"),
        queue.record("c", "models", SENT, b"3"),
        queue.record("d", "models", SENT, b"4"),
    )
    assert sorted(seen) == sorted(
        [(name, 1100, {}) for name in "acd" for _ in range(2)] + [("b", 107, {})]
    )
    ok = ("done", "ok")
    assert queue.rows() == {"a": ok, "b": ("rejected", "invalid_payload"), "c": ok, "d": ok}


def test_a_batch_of_which_nothing_is_valid_any_more(queue: Queue, seen: Seen) -> None:
    VALID[7] = 1
    queue.run(queue.record("b", "models", {"cents": 7}))
    assert seen == [("b", 107, {})]
    assert queue.rows() == {"b": ("rejected", "invalid_payload")}


def test_after_its_check(queue: Queue, seen: Seen) -> None:
    for _ in range(2):
        queue.run(queue.record("a", "call", SENT, tenant="acme"))
    assert seen == [("a", SENT, {"tenant": "acme"})] * 2
    assert queue.rows() == {"a": ("done", "ok")}


@pytest.mark.parametrize("kind", ["later", "count"])
def test_after_the_functions_of_its_type(queue: Queue, seen: Seen, kind: str) -> None:
    record = queue.record("a", kind, SENT)
    queue.run(record)
    if kind == "count":
        assert queue.row("a")["state"] == "waiting"
        queue.again("a")
    assert seen == [("a", SENT, {})]
    assert queue.rows() == {"a": ("done", "ok")}
    queue.run(record)
    assert queue.state("a") == ("done", "ok")
    assert queue.letters() == []


def test_headers_of_an_event_that_waits(queue: Queue, seen: Seen) -> None:
    """They are in its value, and its row is made of what was read of it."""
    event = {
        "specversion": "1.0", "id": "a", "type": "again", "source": "s", "tenant": "acme",
        "data": SENT,
    }  # fmt: skip
    kind = {"content-type": "application/cloudevents+json"}
    queue.run(queue.record(None, None, orjson.dumps(event), **kind))
    queue.again("a")
    (_, payload, first), second = seen
    assert (payload, first["ce_tenant"]) == (SENT, "acme")
    assert second == ("a", SENT, first)


def test_error_trackers_hear_of_what_was_sent(queue: Queue, errors: Seen) -> None:
    queue.run(queue.record("a", "fails", SENT, tenant="acme"))
    assert errors == [("a", SENT, {"tenant": "acme"})]


def test_one_that_fails_alone_is_entered_once(queue: Queue, seen: Seen) -> None:
    queue.run(queue.record("a", "book", SENT | {"kind": "refused"}))
    assert [name for name, *_ in seen] == ["a"]
    assert queue.rows() == {"a": ("rejected", "refused")}


def test_a_type_that_is_refused_all_the_time_is_entered_once_for_each(
    queue: Queue, seen: Seen
) -> None:
    """But for those whose segment is the first, where the first one undid all before it."""
    refused = SENT | {"kind": "refused"}
    ids = [f"{n:03}" for n in range(200)]
    queue.run(*(queue.record(name, "book", refused, name.encode()) for name in ids))
    assert set(queue.rows().values()) == {("rejected", "refused")}
    assert [name for name, *_ in seen] == ["000", *ids]
    # The first segment, then fifty savepoints each.
    found = queue.query(f"SELECT count(*) FROM {queue.schema}.requests GROUP BY xmin::text")
    assert sorted(n for (n,) in found) == [25, 25, 50, 50, 50]


def test_what_takes_no_tx_needs_no_savepoint_and_runs_in_one_go(queue: Queue, errors: Seen) -> None:
    """However small its segments are."""
    queue.executor.close()
    queue.executor = queue.another(queue.url, segment=1)
    ids = [f"{n:03}" for n in range(60)]
    queue.run(*(queue.record(name, "fails", SENT, name.encode()) for name in ids))
    assert [name for name, *_ in errors] == ids
    assert {status["error"].partition(" (")[0] for status in queue.statuses} == {"ValueError: no"}
