"""Another payload under a known id never runs, also where its row could not have a fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
import pytest

from feedback.journal.parking import ParkedRequest, park
from feedback.journal.rows import headers_json
from processing import App, Message, RawMessage, Request
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.executor import Bench

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
