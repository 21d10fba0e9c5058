"""Deferred constraints: tried at each segment's end, and left as the schema says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Reject, Request, RetryPolicy
from stack import Stack
from tests.support.executor import Bench

SCHEMA = """
CREATE TABLE {s}.parent (id text PRIMARY KEY);;
CREATE TABLE {s}.child (
    id text PRIMARY KEY, parent text REFERENCES {s}.parent DEFERRABLE INITIALLY DEFERRED
);;
CREATE TABLE {s}.seat (n int UNIQUE DEFERRABLE INITIALLY IMMEDIATE);;
CREATE TABLE {s}.audit (id text);;
CREATE FUNCTION {s}.note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO {s}.audit VALUES (NEW.id); RETURN NULL; END $$;;
CREATE CONSTRAINT TRIGGER noted AFTER INSERT ON {s}.child
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {s}.note();;
CREATE TABLE {s}.slow (seconds float);;
CREATE FUNCTION {s}.rest() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(NEW.seconds); RETURN NULL; END $$;;
CREATE CONSTRAINT TRIGGER rests AFTER INSERT ON {s}.slow
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {s}.rest();;
CREATE SEQUENCE {s}.firings;;
CREATE TABLE {s}.late (code text);;
CREATE FUNCTION {s}.fail_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF nextval('{s}.firings') % 2 = 0 THEN RAISE 'not at COMMIT' USING ERRCODE = NEW.code; END IF;
RETURN NULL; END $$;;
CREATE CONSTRAINT TRIGGER fails_late AFTER INSERT ON {s}.late
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {s}.fail_late()
"""


KINDS = pytest.mark.parametrize("kind", ["order", "sent order"])
"""Waiting for each answer, and in a pipeline."""


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    def order(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> None:
        """The child before its parent, as deferring allows."""
        tx.execute(f"INSERT INTO {schema}.child VALUES (%s, %s)", [request.id, request.id])
        if payload.get("reject"):
            raise Reject("no_funds")
        if not payload.get("orphan"):
            tx.execute(f"INSERT INTO {schema}.parent VALUES (%s)", [request.id])

    app.handler("order")(order)
    app.handler("sent order", pipeline=True)(order)

    def rest(payload: float, tx: psycopg.Cursor[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.slow VALUES (%s)", [payload])

    app.handler("rest")(rest)
    app.handler("sent rest", pipeline=True)(rest)
    app.handler("outside", effect="external", timeout=0.3)(rest)

    def late(payload: str, tx: psycopg.Cursor[Any]) -> None:
        """Its trigger finds nothing wrong at the segment's end, and fails at COMMIT."""
        tx.execute(f"INSERT INTO {schema}.late VALUES (%s)", [payload])

    app.handler("late")(late)
    listed = psycopg.errors.UndefinedTable
    app.handler("late again", retries=RetryPolicy(attempts=2, base=60, on=(listed,)))(late)

    @app.batch_handler("rest together")
    def rest_together(requests: list[Request[float]], tx: psycopg.Cursor[Any]) -> list[None]:
        return [rest(request.payload, tx) for request in requests]

    @app.handler("seat")
    def seat(payload: dict[str, Any], tx: psycopg.Cursor[Any]) -> str:
        """Relies on a constraint that could be deferred and is not."""
        try:
            with tx.connection.transaction():
                tx.execute(f"INSERT INTO {schema}.seat VALUES (1)")
        except psycopg.errors.UniqueViolation:
            return "taken"
        return "mine"

    with psycopg.connect(stack.database, autocommit=True) as connection:
        for statement in SCHEMA.replace("{s}", schema).split(";;"):
            connection.execute(statement.encode())
    made = Bench(app, stack.database, schema, segment=4)
    yield made
    made.executor.close()
    made.app.stop_worker()


def column(bench: Bench, table: str) -> list[str]:
    return [row[0] for row in bench.query(f"SELECT id FROM {bench.schema}.{table} ORDER BY id")]


@KINDS
@pytest.mark.parametrize("wrong", ["reject", "orphan"])
def test_a_neighbour_that_fails_leaves_constraints_deferred(
    bench: Bench, wrong: str, kind: str
) -> None:
    names = [f"r{n:02d}" for n in range(14)]
    bench.run(*(bench.record(name, kind, {wrong: name == "r05"}) for name in names))
    rows = bench.rows()
    assert rows.pop("r05")[0] == ("rejected" if wrong == "reject" else "failed")
    assert rows == dict.fromkeys([name for name in names if name != "r05"], ("done", "ok"))
    assert column(bench, "child") == column(bench, "parent") == sorted(rows)


@KINDS
def test_constraint_triggers_act_once_for_each_request(bench: Bench, kind: str) -> None:
    names = [f"r{n:02d}" for n in range(14)]
    bench.run(*(bench.record(name, kind, {"reject": name == "r05"}) for name in names))
    names.remove("r05")
    assert column(bench, "audit") == names


def test_constraints_that_are_not_deferred_stay_so_in_each_segment(bench: Bench) -> None:
    bench.run(*(bench.record(f"s{n:02d}", "seat", {}, key=b"%02d" % n) for n in range(10)))
    assert set(bench.rows().values()) == {("done", "ok")}
    assert [status["result"] for status in bench.statuses] == ["mine", *["taken"] * 9]


@pytest.mark.parametrize("kind", ["rest", "sent rest", "rest together"])
@pytest.mark.parametrize("many", [1, 4])
def test_what_their_triggers_take_is_the_time_of_requests(
    bench: Bench, kind: str, many: int
) -> None:
    """So those of slow ones share no chunk, whose end would be none of theirs in time."""
    report = bench.run(*(bench.record(f"r{n}", kind, 0.1) for n in range(many)))
    assert {*bench.rows().values()} == {("done", "ok")}
    assert report.times[kind][0] == many
    assert report.times[kind][1] >= 0.1 * many


def test_a_call_whose_trigger_hangs_is_in_doubt_and_its_worker_lives(bench: Bench) -> None:
    bench.run(bench.record("hangs", "outside", 5), bench.record("fine", "outside", 0.1))
    assert bench.rows() == {"hangs": ("in_doubt", "handler_error"), "fine": ("done", "ok")}
    assert bench.query(f"SELECT seconds FROM {bench.schema}.slow") == [(0.1,)]
    [(error,)] = bench.query(f"SELECT error FROM {bench.schema}.requests WHERE id = 'hangs'")
    assert "statement timeout" in error


@pytest.mark.parametrize("code", ["42P01", "42703", "42501", "3F000", "53100", "P0001"])
def test_what_a_trigger_lacks_at_commit_is_the_end_of_its_request_alone(
    bench: Bench, code: str
) -> None:
    """Whatever that is: the journal lacks nothing, as its rows were written by then."""
    report = bench.run(
        bench.record("a", "order", {}), bench.record("bad", "late", code),
        bench.record("b", "order", {}),
    )  # fmt: skip
    assert (report.database_up, report.returned, report.unclear) == (True, [], [])
    done = ("done", "ok")
    assert bench.rows() == {"a": done, "bad": ("failed", "handler_error"), "b": done}
    assert column(bench, "child") == ["a", "b"]
    assert bench.query(f"SELECT code FROM {bench.schema}.late") == []
    [told] = [status for status in bench.statuses if status["id"] == "bad"]
    assert told["code"] == "handler_error"
    assert "not at COMMIT" in told["error"]


def test_a_policy_knows_what_failed_at_commit_by_its_own_exception(bench: Bench) -> None:
    bench.run(bench.record("listed", "late again", "42P01"), bench.record("a", "order", {}))
    bench.run(bench.record("other", "late again", "42703"))
    waiting, dead = ("waiting", "handler_error"), ("dead", "handler_error")
    assert bench.rows() == {"listed": waiting, "a": ("done", "ok"), "other": dead}
    [(error,)] = bench.query(f"SELECT error FROM {bench.schema}.requests WHERE id = 'listed'")
    assert error.startswith("UndefinedTable: not at COMMIT")
