"""Handlers whose statements are sent without waiting for the answers, on real PostgreSQL."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, RegistrationError, Reject, Request
from stack import Stack
from tests.support.executor import Bench

ran: Counter[str] = Counter()
kept: list[Any] = []
"""Pipelines that a handler entered and never left."""


def left_open(payload: Any, tx: psycopg.Cursor[Any]) -> None:
    pipeline = tx.connection.pipeline()
    pipeline.__enter__()
    kept.append(pipeline)
    if payload.get("raise"):
        raise RuntimeError


def answer_to(what: str, request_id: str, tx: psycopg.Cursor[Any], schema: str) -> Any:
    """What a handler reads of its statements."""
    match what:
        case "rows":
            return tx.execute("SELECT 5").fetchone()[0]  # type: ignore[index]
        case "count":
            tx.execute(f"UPDATE {schema}.effects SET id = id WHERE id = 'nobody'")
            return tx.rowcount
        case "anyhow":
            with contextlib.suppress(psycopg.Error):
                return tx.execute("SELECT 5").fetchone()[0]  # type: ignore[index]
        case "sets":
            inserted = f"INSERT INTO {schema}.more VALUES (%s) RETURNING id"
            tx.executemany(inserted, [(request_id,), ("too",)], returning=True)
            return [one.fetchone()[0] for one in tx.results()]  # type: ignore[index]
        case "columns":
            tx.execute("SELECT %s::int AS number", (5,))
            return [column.name for column in tx.description or ()]
    return None


def make_app(schema: str, url: str) -> App:  # noqa: C901 - a list of what handlers do
    app = App()

    def pay(  # noqa: C901 - as above
        payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]
    ) -> Any:
        ran[request.id] += 1
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (payload.get("as", request.id),))
        match payload:
            case {"reject": code}:
                raise Reject(code, "no")
            case {"each": statements}:
                for statement in statements:
                    tx.execute(statement)
            case {"sql": statement}:
                tx.execute(statement)
            case {"swallow": statement}:
                with contextlib.suppress(psycopg.Error):
                    tx.execute(statement)
            case {"read": what}:
                return answer_to(what, request.id, tx, schema)
            case {"many": count}:
                for n in range(count):
                    tx.execute(f"INSERT INTO {schema}.more VALUES (%s)", (f"{request.id} {n}",))
            case {"unguarded": statement}:
                psycopg.Cursor.execute(tx, statement)
            case {"watch": pid}:
                with psycopg.connect(url) as other:
                    asked = "SELECT query FROM pg_stat_activity WHERE pid = %s"
                    return other.execute(asked, (pid,)).fetchone()[0]  # type: ignore[index]
        return None

    app.handler("pay", pipeline=True)(pay)
    app.handler("pay and wait")(pay)

    @app.handler("rows")
    def rows(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        tx.executemany(f"INSERT INTO {schema}.more VALUES (%s)", [("a",), ("b",)])

    @app.handler("own")
    def own(payload: Any, tx: psycopg.Cursor[Any]) -> Any:
        with tx.connection.pipeline() as pipeline:
            row = tx.execute("SELECT 5").fetchone()
            pipeline.sync()
        return row

    app.handler("left open", effect="external")(left_open)
    return app


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    ran.clear()
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text PRIMARY KEY)".encode())
        connection.execute(f"CREATE TABLE {schema}.more (id text)".encode())
    made = Bench(make_app(schema, stack.database), stack.database, schema)
    yield made
    made.executor.close()
    made.app.stop_worker()


def names(count: int) -> list[str]:
    return [f"n{n:02d}" for n in range(count)]


def run(bench: Bench, **payloads: Any) -> None:
    """Sixty requests, these among them."""
    records = [bench.record(name, "pay", payloads.get(name, {})) for name in names(60)]
    report = bench.run(*records)
    assert (report.returned, report.unclear) == ([], [])


def others(bench: Bench, *but: str) -> None:
    """All but these are done, with their effect, once."""
    rows, effects = bench.rows(), bench.effects()
    for name in set(names(60)) - {*but}:
        assert rows[name] == ("done", "ok")
        assert name in effects


def test_each_has_its_effect_and_its_row(bench: Bench) -> None:
    run(bench)
    others(bench)
    assert set(ran.values()) == {1}


def test_of_those_sent_together_only_the_one_that_fails_fails(bench: Bench) -> None:
    run(bench, n30={"as": "n31"}, n40={"sql": "SELECT 1/0"})
    # Which of two comes first with one key is left to the order of the chunk: n30.
    others(bench, "n30", "n31", "n40")
    assert bench.rows()["n30"] == ("done", "ok")
    assert bench.state("n31") == bench.state("n40") == ("failed", "handler_error")
    [(told,)] = bench.query(f"SELECT error FROM {bench.schema}.requests WHERE id = 'n40'")
    assert "division by zero" in told
    assert max(ran.values()) <= 2


def test_a_statement_that_was_to_be_prepared_behind_one_that_fails(bench: Bench) -> None:
    """psycopg has a statement prepared at its sixth use: the server leaves that out here."""
    run(bench, n01={"sql": "SELECT 1/0"})
    others(bench, "n01")
    assert bench.state("n01") == ("failed", "handler_error")
    bench.run(bench.record("later", "pay", {}))
    assert (bench.rows()["later"], len(bench.backends)) == (("done", "ok"), 1)


def test_a_statement_that_is_prepared_while_others_are_to_be_forgotten(bench: Bench) -> None:
    """psycopg forgets all behind a ROLLBACK, of which it hears at the end of the pipeline."""
    run(bench)
    undo = {"each": ["SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine"]}
    segment = [bench.record(f"a{n}", "pay", undo) for n in range(25)]
    bench.run(*segment, bench.record("b", "rows", {}), bench.record("c", "rows", {}))
    assert (bench.rows()["b"], bench.rows()["c"]) == (("done", "ok"), ("done", "ok"))
    assert len(bench.backends) == 1


def test_a_rejection_in_the_middle_is_its_own(bench: Bench) -> None:
    run(bench, n30={"reject": "no_funds"})
    others(bench, "n30")
    assert bench.rows()["n30"] == ("rejected", "no_funds")
    assert "n30" not in bench.effects()


def test_an_error_that_its_handler_would_have_caught_is_caught(bench: Bench) -> None:
    # It left its transaction broken, as it would without a pipeline.
    run(bench, n30={"swallow": "SELECT 1/0"})
    others(bench, "n30")
    assert bench.state("n30") == ("failed", "handler_error")


@pytest.mark.parametrize("what, result", [("rows", 5), ("count", 0), ("anyhow", 5)])
def test_one_that_reads_an_answer_is_run_again_without_a_pipeline(
    bench: Bench, what: str, result: int
) -> None:
    run(bench, n30={"read": what})
    others(bench)
    [(found,)] = bench.query(f"SELECT result FROM {bench.schema}.requests WHERE id = 'n30'")
    assert (found, ran["n30"]) == (result, 2)


@pytest.mark.parametrize("what", ["sets", "columns"])
def test_so_are_all_that_read_what_is_prepared(bench: Bench, what: str) -> None:
    run(bench, **{name: {"read": what} for name in names(60)[20:]})
    others(bench)
    results = dict(bench.query(f"SELECT id, result FROM {bench.schema}.requests"))
    for name in names(60)[20:]:
        assert results[name] == ([name, "too"] if what == "sets" else ["number"])


def test_a_handler_may_read_answers_in_a_pipeline_of_its_own(bench: Bench) -> None:
    bench.run(bench.record("a", "own", {}), bench.record("b", "own", {}))
    assert bench.rows() == {"a": ("done", "ok"), "b": ("done", "ok")}
    assert bench.query(f"SELECT DISTINCT result FROM {bench.schema}.requests") == [([5],)]


def test_what_the_server_takes_for_its_statements_is_its_time(bench: Bench) -> None:
    slow = {"sql": "SELECT pg_sleep(0.05)"}
    report = bench.run(*(bench.record(name, "pay", slow) for name in names(10)))
    count, seconds = report.times["pay"]
    assert (count, len(ran)) == (10, 10)
    # Else they would be taken for quick ones, and go in chunks of many seconds.
    assert seconds >= 10 * 0.05


def test_a_connection_that_ends_in_a_pipeline_costs_nobody_anything(bench: Bench) -> None:
    once = "SELECT pg_terminate_backend(pg_backend_pid()) WHERE nextval('{}.once') = 1"
    bench.query(f"CREATE SEQUENCE {bench.schema}.once")
    run(bench, n30={"sql": once.format(bench.schema)})
    others(bench)
    assert len(bench.backends) == 2


def test_a_transaction_cannot_be_ended_in_a_pipeline(bench: Bench) -> None:
    run(bench, n30={"sql": "COMMIT"})
    others(bench, "n30")
    assert bench.state("n30") == ("failed", "handler_error")


def test_nothing_is_sent_before_the_last_of_them_has_run(bench: Bench) -> None:
    bench.run(bench.record("first", "pay", {}))  # its backend is known then
    (pid, _), *_ = bench.backends
    run(bench, n10={"watch": pid})
    others(bench)
    [(query,)] = bench.query(f"SELECT result FROM {bench.schema}.requests WHERE id = 'n10'")
    assert "INSERT" not in query, "the server has seen a statement of a neighbour before"


def test_more_statements_than_are_kept_back_all_have_their_effect(bench: Bench) -> None:
    run(bench, **{name: {"many": 1000 if name == "n30" else 17} for name in names(60)})
    others(bench)
    assert bench.query(f"SELECT count(DISTINCT id), count(*) FROM {bench.schema}.more") == [
        (59 * 17 + 1000, 59 * 17 + 1000)
    ]
    assert set(ran.values()) == {1}


def test_a_transaction_that_was_ended_in_spite_of_the_guard_runs_nothing_twice(
    bench: Bench,
) -> None:
    run(bench, n30={"unguarded": "COMMIT"})
    # Which of those that share its savepoint did it nobody can say.
    ended = {name for name, (_, code) in bench.rows().items() if code == "transaction_ended"}
    assert ended == set(names(60)[25:50])
    assert {bench.rows()[name][0] for name in ended} == {"in_doubt"}
    others(bench, *ended)
    assert set(names(60)[:31]) <= set(bench.effects())
    assert {ran[name] for name in ended} == {1}


MIXED: dict[str, Any] = {
    "n03": {"reject": "no_funds"},
    "n12": {"as": "n13"},
    "n20": {"sql": "SELECT 1/0"},
    "n28": {"swallow": "SELECT 1/0"},
    "n33": {"read": "rows"},
    "n34": {"read": "count"},
    "n41": {"sql": "COMMIT"},
    "n47": {"sql": "SAVEPOINT mine"},
    "n48": {"sql": "ROLLBACK TO nobodys"},
    "n52": {"many": 150},
    "n58": {"sql": "no statement"},
}


def test_what_comes_of_requests_is_the_same_as_without_a_pipeline(bench: Bench) -> None:
    found = []
    for kind in ("pay", "pay and wait"):
        bench.run(*(bench.record(name, kind, MIXED.get(name, {})) for name in names(60)))
        table = f"{bench.schema}.requests"
        rows = bench.query(f"SELECT id, state, code, error, result FROM {table} ORDER BY id")
        more = bench.query(f"SELECT id FROM {bench.schema}.more ORDER BY id")
        told = {name: bench.state(name) for name in names(60)}
        found.append((rows, more, bench.effects(), told))
        bench.query(f"TRUNCATE {table}, {bench.schema}.more, {bench.schema}.effects CASCADE")
    assert found[0] == found[1]
    assert {row[2] for row in found[0][0]} == {"ok", "no_funds", "handler_error"}


def test_it_is_for_handlers_of_one_request_that_take_tx() -> None:
    app = App()
    with pytest.raises(RegistrationError, match="take `tx`"):
        app.handler("a", pipeline=True)(lambda payload: None)
    with pytest.raises(RegistrationError, match="take `tx`"):
        app.batch_handler("b", pipeline=True)(lambda requests, tx: None)
    with pytest.raises(RegistrationError, match="goes through `tx`"):
        app.handler("c", pipeline=True, effect="none")(lambda payload: None)


@pytest.mark.parametrize("payload", [{}, {"raise": True}])
def test_one_that_is_left_open_is_the_end_of_its_own_call_alone(
    bench: Bench, payload: dict[str, Any]
) -> None:
    bench.run(bench.record("a", "left open", payload))
    bench.run(bench.record("b", "own", {}))
    assert bench.rows() == {"a": ("in_doubt", "handler_error"), "b": ("done", "ok")}
    assert bench.state("a") == ("in_doubt", "handler_error")
    kept.clear()
