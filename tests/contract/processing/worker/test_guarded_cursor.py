"""One cursor for all requests of a type: nothing of one request is seen by the next."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.sql import SQL
from psycopg.types.enum import EnumInfo
from psycopg.types.numeric import FloatLoader
from psycopg.types.string import StrDumper, TextLoader

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench

Seen = list[tuple[Any, ...]]


def make_app(seen: Seen) -> App:
    app = App()

    @app.handler("look")
    def look(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        try:
            left = tx.fetchone()
        except psycopg.ProgrammingError:
            left = None
        tx.execute("SELECT %s::text AS id", (request.id,))
        seen.append((request.id, id(tx), left, tx.rowcount, type(tx.fetchone())))
        tx.execute("SELECT generate_series(1, 9)")
        seen[-1] += (len(tx.fetchmany()),)
        match payload:
            case "sizes":
                tx.arraysize = 5
            case "infinity":
                tx.execute("SELECT 'infinity'::timestamptz").fetchone()
            case "close":
                tx.close()
            case "dicts":
                tx.row_factory = dict_row
            case "fail":
                raise ValueError("boom")

    return app


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def bench(stack: Stack, schema: str, seen: Seen) -> Iterator[Bench]:
    made = Bench(make_app(seen), stack.database, schema)
    yield made
    made.executor.close()


@pytest.mark.parametrize("bad", ["fine", "close", "dicts", "sizes", "fail"])
def test_what_a_request_did_to_its_cursor_the_next_does_not_see(
    bench: Bench, seen: Seen, bad: str
) -> None:
    bench.run(*[bench.record(f"r{n}", "look", bad if n == 2 else "fine") for n in range(5)])
    assert [line[2:] for line in seen] == [(None, 1, tuple, 1)] * len(seen)
    expected = ("failed", "handler_error") if bad == "fail" else ("done", "ok")
    assert bench.rows() == {f"r{n}": expected if n == 2 else ("done", "ok") for n in range(5)}


def test_a_cursor_is_used_again_and_does_not_outlive_its_connection(
    bench: Bench, seen: Seen
) -> None:
    bench.run(*[bench.record(f"r{n}", "look", "fine") for n in range(3)])
    assert len({line[1] for line in seen}) == 1
    bench.executor.close()
    bench.run(bench.record("again", "look", "fine"))
    assert bench.rows()["again"] == ("done", "ok")


def test_a_handler_reads_times_as_psycopg_does(bench: Bench) -> None:
    """The journal's own are made safe. What a handler's mean nobody else knows."""
    bench.run(bench.record("r", "look", "infinity"))
    assert bench.rows() == {"r": ("failed", "handler_error")}


class Loud(TextLoader):
    def load(self, data: Any) -> str:
        return f"{bytes(data).decode()}!"


class Quiet(StrDumper):
    def dump(self, obj: str) -> bytes:
        return obj.lower().encode()


@pytest.mark.parametrize("bad", ["loader", "dumper", "format"])
def test_what_a_request_registers_with_its_cursor_the_next_does_not_meet(
    stack: Stack, schema: str, bad: str
) -> None:
    app, given = App(), list[tuple[str, Any]]()

    @app.handler("look")
    def look(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        match payload:
            case "loader":
                tx.adapters.register_loader("text", Loud)
            case "dumper":
                tx.adapters.register_dumper(str, Quiet)
            case "format":
                tx.format = psycopg.pq.Format.BINARY
        # Of the text that it ran last psycopg has a dumper at hand.
        tx.execute("SELECT %s::text" + " --" * bool(payload), (f"R{request.id}",))
        result = tx.pgresult
        assert result is not None
        given.append((request.id, [tx.fetchone(), result.fformat(0)]))

    bench = Bench(app, stack.database, schema)
    for chunk in range(3):  # after the first the server keeps the statement
        names = [f"{chunk}{n}" for n in range(8)]
        bench.run(*[bench.record(n, "look", bad if n[1] == "2" else "") for n in names])
    bench.executor.close()
    assert {name for name, what in given if what != [(f"R{name}",), 0]} == {"02", "12", "22"}
    assert {*bench.rows().values()} == {("done", "ok")}


def test_what_a_request_registers_with_the_connection_is_refused(stack: Stack, schema: str) -> None:
    """It would stay, and other types get values of other kinds."""
    app, given = App(), list[Any]()

    @app.handler("register")
    def register(payload: str, tx: psycopg.Cursor[Any]) -> None:
        adapters = tx.connection.adapters
        match payload:
            case "loader":
                adapters.register_loader("numeric", FloatLoader)
            case "dumper":
                adapters.register_dumper(str, Quiet)
            case "type":
                EnumInfo("mood", 12345, 12346, ["glad"]).register(tx.connection)
            case "notices":
                tx.connection.add_notice_handler(given.append)

    @app.handler("look")
    def look(payload: Any, tx: psycopg.Cursor[Any]) -> str:
        own = tx.connection.cursor()
        own.adapters.register_loader("int4", Loud)
        given.append(own.execute("SELECT 5").fetchone())
        tx.execute("DO $$ BEGIN RAISE NOTICE 'of another type'; END $$")
        text = SQL("SELECT 1.10, {}").format("A").as_string(tx.connection)
        return repr(tx.execute(text).fetchone())

    bench = Bench(app, stack.database, schema)
    wrong = ("loader", "dumper", "type", "notices")
    bench.run(bench.record("before", "look", {}))
    for payload in wrong:
        bench.run(bench.record(payload, "register", payload))
    bench.run(bench.record("after", "look", {}))
    bench.executor.close()
    assert given == [("5!",), ("5!",)]
    looked = repr((Decimal("1.10"), "A"))
    assert [s["result"] for s in bench.statuses if s["state"] == "done"] == [looked, looked]
    for payload in wrong:
        [(error,)] = bench.query(f"SELECT error FROM {schema}.requests WHERE id = %s", payload)
        assert "would hold for other requests" in error, payload
