"""A column gets another type while workers run: the server keeps statements with the former one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Reject, Request
from stack import Stack
from tests.support.executor import Bench

OFTEN = 20
"""More often than a statement runs before the server keeps it, whatever the cursor."""
DONE = ("done", "ok")
KINDS = ["insert", "insert piped", "by connection", "many", "reject", "batch"]


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()
    statement = f"INSERT INTO {schema}.events (id, v) VALUES (%s, %s)"

    def insert(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute(statement, (request.id, payload))

    app.handler("insert")(insert)
    app.handler("insert piped", pipeline=True)(insert)
    app.handler("insert outside", effect="external")(insert)

    @app.handler("by connection")
    def by_connection(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.connection.execute(statement, (request.id, payload))

    @app.handler("many")
    def many(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.executemany(statement, [(request.id, payload)])

    @app.handler("reject")
    def reject(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        try:
            insert(payload, tx, request)
        except psycopg.DataError:
            raise Reject("bad_value") from None

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        for request in requests:
            insert(request.payload, tx, request)
        return [None] * len(requests)

    @app.handler("find")
    def find(payload: Any, tx: psycopg.Cursor[Any]) -> int:
        found = tx.execute(f"SELECT count(*) FROM {schema}.events WHERE v = %s", (payload,))
        return int((found.fetchone() or (0,))[0])

    made = Bench(app, stack.database, schema)
    yield made
    made.executor.close()
    made.app.stop_worker()


def make(bench: Bench, type_: str) -> None:
    bench.query(f"CREATE TABLE {bench.schema}.events (id text, v {type_})")


def alter(bench: Bench, type_: str, using: str = "v") -> None:
    bench.query(f"ALTER TABLE {bench.schema}.events ALTER v TYPE {type_} USING {using}::{type_}")


def run(bench: Bench, kind: str, value: str, *others: str) -> list[tuple[str, str]]:
    """Ends of some requests, one in each chunk but for the `others`."""
    names = [f"{kind} {bench.number} {n}" for n in range(OFTEN + len(others))]
    for name in names[:OFTEN]:
        bench.run(bench.record(name, kind, value))
    last = zip(names[OFTEN:], others, strict=True)
    bench.run(*(bench.record(name, kind, other) for name, other in last))
    rows = bench.rows()
    return [rows[name] for name in names]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "before, after, old, new", [("int", "text", "17", "A17"), ("int", "bigint", "17", "8000000000")]
)
def test_what_fails_by_its_former_type_runs_again(
    bench: Bench, kind: str, before: str, after: str, old: str, new: str
) -> None:
    make(bench, before)
    assert {*run(bench, kind, old)} == {DONE}
    alter(bench, after)
    assert {*run(bench, kind, new, new, new, new)} == {DONE}
    found = bench.query(f"SELECT v::text, count(*) FROM {bench.schema}.events GROUP BY 1")
    assert dict(found) == {old: OFTEN, new: OFTEN + 3}
    assert len(bench.backends) == 2


def test_so_does_what_finds_no_operator_for_it(bench: Bench) -> None:
    make(bench, "int")
    assert {*run(bench, "find", "17")} == {DONE}
    alter(bench, "text")
    assert {*run(bench, "find", "17")} == {DONE}


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_that_was_replaced_is_found_anew(bench: Bench, kind: str) -> None:
    schema = bench.schema
    bench.query(f"CREATE TYPE {schema}.mood AS ENUM ('sad', 'ok')")
    make(bench, f"{schema}.mood")
    assert {*run(bench, kind, "ok")} == {DONE}
    _replace_mood(bench)
    assert {*run(bench, kind, "ok", "ok", "ok", "ok")} == {DONE}
    assert len(bench.backends) == 2


@pytest.mark.parametrize("enum", [True, False])
def test_a_call_outside_is_in_doubt_once(bench: Bench, enum: bool) -> None:
    if enum:
        bench.query(f"CREATE TYPE {bench.schema}.mood AS ENUM ('sad', 'ok')")
    make(bench, f"{bench.schema}.mood" if enum else "int")
    assert {*run(bench, "insert outside", "ok" if enum else "17")} == {DONE}
    if enum:
        _replace_mood(bench)
    else:
        alter(bench, "text")
    first, *others = run(bench, "insert outside", "ok" if enum else "A17")
    assert first == ("in_doubt", "handler_error")
    assert {*others} == {DONE}


def _replace_mood(bench: Bench) -> None:
    schema = bench.schema
    bench.query(f"ALTER TYPE {schema}.mood RENAME TO former_mood")
    bench.query(f"CREATE TYPE {schema}.mood AS ENUM ('ok')")
    alter(bench, f"{schema}.mood", "v::text")
    bench.query(f"DROP TYPE {schema}.former_mood")


@pytest.mark.parametrize("kind", [*KINDS, "insert outside"])
def test_what_is_wrong_by_any_type_fails_as_it_did(bench: Bench, kind: str) -> None:
    """Nor does it cost a connection, or undo its neighbours for good."""
    make(bench, "int")
    assert {*run(bench, kind, "17")} == {DONE}
    *_, first, bad, last = run(bench, kind, "17", "17", "A17", "17")
    ends = {"reject": ("rejected", "bad_value"), "insert outside": ("in_doubt", "handler_error")}
    assert bad == ends.get(kind, ("failed", "handler_error"))
    good = bad if kind == "batch" else DONE
    assert (first, last) == (good, good)
    assert len(bench.backends) == 1
    (written,) = bench.query(f"SELECT count(*), count(DISTINCT id) FROM {bench.schema}.events")
    count = 2 * OFTEN + 2 * (kind != "batch")
    assert written == (count, count)
