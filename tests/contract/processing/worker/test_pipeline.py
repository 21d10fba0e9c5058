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


def make_app(schema: str) -> App:
    app = App()

    @app.handler("pay", pipeline=True)
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        ran[request.id] += 1
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (payload.get("as", request.id),))
        match payload:
            case {"reject": code}:
                raise Reject(code, "no")
            case {"sql": statement}:
                tx.execute(statement)
            case {"swallow": statement}:
                with contextlib.suppress(psycopg.Error):
                    tx.execute(statement)
            case {"read": "rows"}:
                return tx.execute("SELECT 5").fetchone()[0]  # type: ignore[index]
            case {"read": "count"}:
                tx.execute(f"UPDATE {schema}.effects SET id = id WHERE id = 'nobody'")
                return tx.rowcount
            case {"read": "anyhow"}:
                with contextlib.suppress(psycopg.Error):
                    return tx.execute("SELECT 5").fetchone()[0]  # type: ignore[index]
        return None

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
    made = Bench(make_app(schema), stack.database, schema)
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
