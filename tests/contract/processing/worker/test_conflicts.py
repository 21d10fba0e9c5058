"""Another payload under a known id never runs, also where its row could not have a fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
import pytest
from pydantic import BaseModel, field_validator

from feedback.contract.fingerprint import fingerprint
from feedback.contract.record import Record
from feedback.journal.parking import ParkedRequest, park
from feedback.journal.rows import HOLD_OPEN, headers_json
from feedback.operations.request_reads import get_statuses
from feedback.status.status import Status
from processing import App, Message, RawMessage, Request
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.executor import Bench
from tests.support.parked import park_records
from tests.support.queue import FAR, INSTANCE, Queue

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    def note(tx: psycopg.Cursor[Any], request: Request) -> None:
        tx.execute(
            f"INSERT INTO {schema}.effects VALUES (%s, %s)", [request.id, str(request.payload)]
        )

    @app.handler("pay")
    def pay(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request) -> None:
        note(tx, request)

    @app.handler("own", fingerprint=lambda payload: payload["order"])
    def own(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request) -> None:
        note(tx, request)

    @app.handler("frail", fingerprint=lambda payload: payload["order"])
    def frail(payload: dict[str, Any], request: Request) -> None:
        raise ValueError("not today")

    @app.handler("raw")
    def raw(payload: bytes, tx: psycopg.Cursor[Any], request: Request) -> None:
        note(tx, request)

    @app.handler("again", retries=1)
    def again(payload: dict[str, Any], request: Request) -> None:
        if request.attempt == 1:
            raise ValueError("not yet")

    @app.decoder("foreign")
    def decode(message: RawMessage) -> Message:
        return Message("f-1", "again", {})

    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text, payload text)".encode())
    made = Bench(app, stack.database, schema)
    yield made
    made.executor.close()
    made.app.stop_worker()


def parked(bench: Bench, id: str, kind: str, payload: bytes, *headers: tuple[str, bytes]) -> None:
    row = ParkedRequest(
        id, kind, "topic", 0, 900, AT, None, 0, 0, None, None, payload, headers_json([*headers])
    )
    with psycopg.connect(bench.url, autocommit=True) as connection:
        assert park(connection, [row], "parked", schema=bench.schema).runs


@pytest.mark.parametrize(
    "kind, stored, same, other",
    [
        ("pay", b'{"a":1,"b":2}', b'{"b": 2, "a": 1}', b'{"a":1,"b":3}'),
        ("own", b'{"order":"A","n":1}', b'{"order":"A","n":2}', b'{"order":"B","n":1}'),
        ("raw", b'{"a":1}', b'{"a": 1}', b'{"a":2}'),
    ],
)
def test_a_parked_row_is_compared_by_its_payload(
    bench: Bench, kind: str, stored: bytes, same: bytes, other: bytes
) -> None:
    parked(bench, "p", kind, stored)
    bench.run(bench.record("p", kind, other))
    assert bench.letters() == [("conflict", "p")]
    bench.run(bench.record("p", kind, same))
    assert bench.letters() == [("conflict", "p")]
    assert (bench.state("p"), bench.effects()) == (("waiting", "parked"), [])


def test_a_parked_row_that_is_no_json_is_compared_by_its_bytes(bench: Bench) -> None:
    parked(bench, "p", "raw", b"a", ("content-type", b"text/plain"))
    plain = {"content-type": "text/plain"}
    bench.run(bench.record("p", "raw", b"a", **plain))
    assert bench.letters() == []
    bench.run(bench.record("p", "raw", b"b", **plain))
    assert bench.letters() == [("conflict", "p")]


@pytest.mark.parametrize("verdict", ["timeout", "worker_died"])
def test_a_run_that_was_killed_is_compared_by_its_payload(bench: Bench, verdict: str) -> None:
    bench.run(
        bench.record("o", "own", {"order": "A", "cents": 1}),
        suspect=Suspect(verdict, (), (), 1),
    )
    (before,) = bench.query(f"SELECT state, fingerprint FROM {bench.schema}.requests")
    assert before[1] is None, "no code of the user's sees what may have killed its worker"
    bench.run(bench.record("o", "own", {"order": "B", "cents": 999}))
    assert (bench.effects(), bench.letters()) == ([], [("conflict", "o")])
    assert bench.rows()["o"][0] == before[0]
    bench.run(bench.record("o", "own", {"order": "A", "cents": 2}))
    assert bench.effects() == (["o"] if verdict == "timeout" else [])


def test_statuses_of_decoded_requests_carry_no_fingerprint(bench: Bench) -> None:
    message = ("foreign", 0, 1, 1_700_000_000_000, None, b"x", [], None, None)
    bench.run(message)
    assert bench.rows() == {"f-1": ("waiting", "handler_error")}
    headers = [("ce_id", b"f-1"), ("ce_type", b"again")]
    bench.query(f"UPDATE {bench.schema}.requests SET token = 'local:7', run = run + 1")
    bench.run(("foreign", -1, -1, 0, None, b"{}", headers, "again", 7))
    bench.run(("foreign", 0, 2, 1_700_000_000_000, None, b"x", [], None, None))
    assert bench.rows() == {"f-1": ("done", "ok")}
    assert [status["state"] for status in bench.statuses] == ["waiting", "done", "done"]
    assert not any("fingerprint" in status for status in bench.statuses), orjson.dumps(
        bench.statuses
    )


def test_what_other_producers_send_does_carry_one(bench: Bench) -> None:
    bench.run(bench.record("a", "pay", {}))
    assert "fingerprint" in bench.statuses[0]


# What cannot be compared


def test_an_instance_that_does_not_know_the_type_leaves_the_row_its_payload(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["x"] = ValueError("not now")
    queue.run(queue.record("x", "once", {"cents": 1}, trace="first"))
    assert queue.rows() == {"x": ("failed", "handler_error")}
    queue.query(f"UPDATE {queue.schema}.requests SET own_fingerprint = true")
    before = queue.row("x")
    app = App()
    app.handler("other")(lambda payload: None)
    ignorant = Queue(app, queue.url, queue.schema, instance=INSTANCE)
    ignorant.offset = 100
    ignorant.run(ignorant.record("x", "once", {"cents": 999}, ce_expirytime=FAR))
    assert (ignorant.letters(), queue.row("x")) == ([("conflict", "x")], before)
    ignorant.run(ignorant.record("x", "once", b'{ "cents": 1 }', ce_expirytime=FAR))
    ignorant.executor.close()
    assert queue.rows() == {"x": ("waiting", "unknown_type")}
    row = queue.row("x")
    assert (row["payload"], row["fingerprint"]) == (before["payload"], before["fingerprint"])
    assert [name for name, _ in row["headers"]] == [
        *(name for name, _ in before["headers"]), "ce_expirytime", HOLD_OPEN,
    ], "how long it is wanted, and from when, is the later message's word"  # fmt: skip
    assert queue.query(f"SELECT own_fingerprint FROM {queue.schema}.requests") == [(True,)]
    del answers["x"]
    queue.again("x")
    assert queue.rows() == {"x": ("done", "ok")}
    assert queue.told("x")["id"] == "x"


@pytest.mark.parametrize("by", ["a worker", "maintenance"])
def test_who_does_not_know_the_type_tells_the_fingerprint_of_what_is_done(
    bench: Bench, by: str
) -> None:
    """But not where the type makes its own: a producer would take it for another request's."""
    foreign = ("foreign", 0, 1, 1_700_000_000_000, None, b"x", [], None, None)
    parked(bench, "q", "own", b'{"order":"A"}')
    claimed = [("ce_id", b"q"), ("ce_type", b"own")]
    bench.query(f"UPDATE {bench.schema}.requests SET token = 'local:7', run = run + 1")
    bench.run(("requests", -1, -1, 0, None, b'{"order":"A"}', claimed, "own", 7))
    bench.run(bench.record("p", "pay", {"cents": 1}), bench.record("o", "own", {"order": "A"}))
    bench.run(foreign)
    bench.query(f"UPDATE {bench.schema}.requests SET token = 'local:8', run = run + 1"
                " WHERE id = 'f-1'")  # fmt: skip
    retried = [("ce_id", b"f-1"), ("ce_type", b"again")]
    bench.run(("foreign", -1, -1, 0, None, b"{}", retried, "again", 8))
    assert bench.rows() == dict.fromkeys(("p", "o", "q", "f-1"), ("done", "ok"))
    kinds = {"p": "pay", "o": "own", "q": "own", "f-1": "again"}
    tell = told_by_a_worker if by == "a worker" else told_by_maintenance
    told = tell(bench, [bench.record(n, kind, {"order": "B"}) for n, kind in kinds.items()])
    print_of = fingerprint("pay", b'{"cents":1}', "application/json").hex()
    assert {n: (s.state, s.fingerprint) for n, s in told.items()} == {
        "p": ("done", print_of), "o": ("done", None), "q": ("done", None), "f-1": ("done", None),
    }  # fmt: skip
    with psycopg.connect(bench.url) as connection:
        stand = get_statuses(connection, list(kinds), schema=bench.schema)
    assert {n: s.fingerprint for n, s in stand.items()} == {
        n: s.fingerprint for n, s in told.items()
    }


def told_by_a_worker(bench: Bench, records: list[Record]) -> dict[str, Status]:
    """What a worker that knows none of their types says of them."""
    app = App()
    app.handler("other")(lambda payload: None)
    ignorant = Bench(app, bench.url, bench.schema)
    ignorant.run(*records)
    ignorant.executor.close()
    return {s["id"]: Status.decode(orjson.dumps(s)) for s in ignorant.statuses}


def told_by_maintenance(bench: Bench, records: list[Record]) -> dict[str, Status]:
    """What it says where they were to be parked."""
    told = park_records(bench.url, bench.schema, records)
    return {write.id: Status.decode(write.value) for write in told}


def test_another_type_is_a_conflict_also_where_nobody_here_knows_it(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["x"] = ValueError("not now")
    queue.run(queue.record("x", "once", {"cents": 1}))
    queue.run(queue.record("x", "refund.v2", {"cents": 777}))
    assert queue.letters() == [("conflict", "x")]
    assert queue.rows() == {"x": ("failed", "handler_error")}
    assert bytes(queue.row("x")["payload"]) == b'{"cents":1}'
    assert set(ran) == {("x", 1)}


def test_a_claimed_row_whose_payload_is_not_its_own_does_not_run(
    queue: Queue, ran: list[Any]
) -> None:
    queue.run(queue.record("x", "once", {"cents": 1}, ce_notbefore=FAR))
    before = queue.row("x")
    queue.query(f"UPDATE {queue.schema}.requests SET payload = '{{\"cents\":999}}'")
    queue.again("x")
    assert (ran, queue.rows()) == ([], {"x": ("dead", "conflict")})
    assert queue.row("x")["fingerprint"] == before["fingerprint"]


@pytest.mark.parametrize("broken", ["validator", "fingerprint"])
def test_user_code_that_fails_for_a_moment_leaves_the_row_its_payload(
    stack: Stack, schema: str, broken: str
) -> None:
    failing = {"handler"}
    ran: list[Any] = []
    app = App()

    def own(payload: Any) -> str:
        if "fingerprint" in failing:
            raise ConnectionError("away")
        return str(payload["cents"])

    class Payment(BaseModel):
        cents: int

        @field_validator("cents")
        @classmethod
        def look(cls, value: int) -> int:
            if "validator" in failing:
                raise ConnectionError("away")
            return value

    def run(request: Request) -> None:
        if "handler" in failing:
            raise ValueError("not this time")
        ran.append(request.payload)

    @app.handler("fingerprint", fingerprint=own)
    def first(payload: Any, tx: psycopg.Cursor[Any], request: Request) -> None:
        run(request)

    @app.handler("validator")
    def second(payload: Payment, tx: psycopg.Cursor[Any], request: Request) -> None:
        run(request)

    bench = Bench(app, stack.database, schema)
    bench.run(bench.record("x", broken, {"cents": 1}))
    failing |= {broken}
    bench.run(bench.record("x", broken, {"cents": 999}))
    assert bench.letters() == ([("conflict", "x")] if broken == "validator" else [])
    (stored,) = bench.query(f"SELECT state, payload FROM {schema}.requests")
    assert (stored[0], bytes(stored[1])) == ("failed", b'{"cents":1}')
    failing.clear()
    bench.run(bench.record("x", broken, {"cents": 999}))
    assert (ran, bench.letters()[-1:]) == ([], [("conflict", "x")])
    bench.run(bench.record("x", broken, {"cents": 1}))
    assert (len(ran), bench.rows()) == (1, {"x": ("done", "ok")})
    bench.executor.close()
    bench.app.stop_worker()


def test_a_row_whose_fingerprint_cannot_be_made_is_compared_byte_by_byte(
    stack: Stack, schema: str
) -> None:
    app = App()
    ran: list[Any] = []

    @app.handler("own", fingerprint=lambda payload: payload["order"])
    def own(payload: Any, request: Request) -> None:
        ran.append(payload)

    bench = Bench(app, stack.database, schema)
    bench.run(bench.record("x", "own", {"cents": 1}))
    assert bench.rows() == {"x": ("failed", "handler_error")}
    bench.run(bench.record("x", "own", {"order": "A", "cents": 999}))
    assert (ran, bench.letters()) == ([], [("conflict", "x")])
    bench.executor.close()
    bench.app.stop_worker()


def test_what_is_too_large_to_be_read_ends_no_request_that_was_stored(bench: Bench) -> None:
    order = bench.record("o", "frail", {"order": "A"})
    bench.run(order)
    bench.executor.close()
    bench.executor = bench.another(bench.url, max_payload=100)
    large = {"order": "A", "filler": "x" * 200}
    bench.run(bench.record("o", "frail", large))
    assert bench.letters() == [("conflict", "o")]
    assert bench.rows() == {"o": ("failed", "handler_error")}
    # Alone under its id it is refused, and sent again it is the same.
    bench.run(bench.record("large", "frail", large), bench.record("large", "frail", large))
    assert bench.rows()["large"] == bench.state("large") == ("rejected", "invalid_payload")
    assert bench.letters() == [("conflict", "o")]
