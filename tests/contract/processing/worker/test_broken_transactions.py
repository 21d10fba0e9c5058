"""Handlers that end the transaction behind the guard's back: nobody else pays for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Request
from processing.worker.session import Session
from stack import Stack
from tests.support.executor import Bench, bench_with_effects

left: list[Any] = []
"""Blocks that a handler entered, for another request to leave."""


def make_app(schema: str) -> App:  # noqa: C901 - a list of sins
    app = App()

    def misbehave(payload: Any, tx: psycopg.Cursor[Any]) -> None:  # noqa: C901 - the same
        match payload:
            case {"do": statement}:
                tx.execute(statement)
            case {"enter": True}:
                left.append(tx.connection.transaction())
                left[-1].__enter__()
            case {"leave": True}:
                left.pop().__exit__(ValueError, ValueError("too late"), None)
            case {"raw": statement}:
                tx._conn.pgconn.exec_(statement.encode())
            case {"hide": statement}:
                # The mark is put back, so that nothing shows before the segment's end.
                mark = "SET LOCAL application_name = 'oncepool worker, in a transaction'"
                tx._conn.pgconn.exec_(f"{statement}; {mark}".encode())
            case {"close": True}:
                tx._conn.close()
            case {"rename": True}:
                tx.execute("SET LOCAL application_name = 'mine'")
            case {"copy": statement}:
                with tx.copy(statement):
                    pass
            case {"pgconn": True}:
                tx.connection.pgconn.exec_(b"COMMIT")
            case {"pipeline": True}:
                tx._conn.pgconn.enter_pipeline_mode()

    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        misbehave(payload, tx)

    app.handler("pay")(pay)
    app.handler("piped", pipeline=True)(pay)

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        for request in requests:
            tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
            misbehave(request.payload, tx)
        return [None] * len(requests)

    return app


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    with bench_with_effects(make_app(schema), stack.database, schema) as made:
        yield made


def books(bench: Bench) -> dict[tuple[str, str, int], int]:
    """(state, code, effects) -> how many requests ended so."""
    effects = bench.effects()
    found: dict[tuple[str, str, int], int] = {}
    for name, (state, code) in bench.rows().items():
        assert bench.state(name) == (state, code), f"{name} was told something else"
        key = (state, code, effects.count(name))
        found[key] = found.get(key, 0) + 1
    return found


ENDED = "transaction_ended"


@pytest.mark.parametrize(
    "bad, expected",
    [
        ({"raw": "COMMIT; BEGIN"}, {("done", "ok", 1): 199, ("in_doubt", ENDED, 1): 1}),
        ({"raw": "COMMIT"}, {("done", "ok", 1): 199, ("in_doubt", ENDED, 1): 1}),
        ({"raw": "ROLLBACK; BEGIN"}, {("done", "ok", 1): 199, ("failed", ENDED, 0): 1}),
        ({"hide": "ROLLBACK; BEGIN"}, {("done", "ok", 1): 199, ("failed", ENDED, 0): 1}),
        ({"close": True}, {("done", "ok", 1): 199, ("failed", ENDED, 0): 1}),
        ({"copy": "COMMIT"}, {("done", "ok", 1): 199, ("failed", "handler_error", 0): 1}),
        ({"pgconn": True}, {("done", "ok", 1): 199, ("failed", "handler_error", 0): 1}),
        ({"rename": True}, {("done", "ok", 1): 200}),
        ({"pipeline": True}, {("done", "ok", 1): 199, ("failed", ENDED, 0): 1}),
    ],
)
def test_only_the_request_that_ended_the_transaction_pays(
    bench: Bench, bad: Any, expected: dict[tuple[str, str, int], int]
) -> None:
    records = [bench.record(f"r{n:03}", "pay", bad if n == 60 else {}) for n in range(200)]
    report = bench.run(*records)
    assert books(bench) == expected
    assert bench.effects() == sorted(set(bench.effects())), "an effect twice"
    assert sum(report.counts.values()) == 200


@pytest.mark.parametrize(
    "kind, first, second",
    [
        ("pay", {"do": "SAVEPOINT mine"}, {"do": "ROLLBACK TO SAVEPOINT mine"}),
        ("piped", {"do": "SAVEPOINT mine"}, {"do": "ROLLBACK TO SAVEPOINT mine"}),
        ("pay", {}, {"do": 'ROLLBACK TO SAVEPOINT "oncepool"'}),
        ("pay", {"enter": True}, {"leave": True}),
    ],
)
def test_nobody_goes_back_to_a_savepoint_of_another_request(
    bench: Bench, kind: str, first: Any, second: Any
) -> None:
    """Those between the two would be done, and have no effect."""
    bad = {"r005": first, "r010": second}
    try:
        bench.run(*[bench.record(f"r{n:03}", kind, bad.get(f"r{n:03}", {})) for n in range(30)])
    finally:
        left.clear()
    assert bench.rows()["r010"] == ("failed", "handler_error")
    assert books(bench) == {("done", "ok", 1): 29, ("failed", "handler_error", 0): 1}


def test_a_commit_that_nobody_can_be_blamed_for_leaves_its_segment_in_doubt(bench: Bench) -> None:
    bad = {"hide": "COMMIT; BEGIN"}
    bench.run(*[bench.record(f"r{n:03}", "pay", bad if n == 60 else {}) for n in range(200)])
    found = books(bench)
    # Requests 50 to 74 share a savepoint: 50 to 60 have their effect, those after it lost theirs.
    assert found == {("done", "ok", 1): 175, ("in_doubt", ENDED, 1): 11, ("in_doubt", ENDED, 0): 14}
    assert bench.effects() == sorted(set(bench.effects())), "an effect twice"


@pytest.mark.parametrize("end", ["COMMIT", "COMMIT; BEGIN"])
def test_a_batch_whose_transaction_was_committed_is_in_doubt_and_not_run_again(
    bench: Bench, end: str
) -> None:
    records = [bench.record(f"b{n}", "batch", {"raw": end} if n == 5 else {}) for n in range(10)]
    bench.run(*records)
    assert set(bench.rows().values()) == {("in_doubt", ENDED)}
    assert len(bench.rows()) == 10
    assert bench.effects() == sorted(set(bench.effects())), "an effect twice"


@pytest.mark.parametrize("end, state", [("ROLLBACK; BEGIN", "failed"), ("ROLLBACK", "in_doubt")])
def test_a_batch_whose_transaction_was_rolled_back_has_failed_if_another_was_open_since(
    bench: Bench, end: str, state: str
) -> None:
    records = [bench.record(f"b{n}", "batch", {"raw": end} if n == 9 else {}) for n in range(10)]
    bench.run(*records)
    assert books(bench) == {(state, ENDED, 0): 10}


def test_a_connection_cut_by_somebody_else_is_nobodys_fault(bench: Bench, stack: Stack) -> None:
    """The server ends the backend once: the request is run again, and done."""
    schema = bench.schema
    bench.query(f"CREATE TABLE {schema}.cut (id text)")
    bench.query(
        f"CREATE FUNCTION {schema}.cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF new.id = 'r3' AND nextval('{schema}.once') = 1 THEN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN new; END $$"
    )
    bench.query(f"CREATE SEQUENCE {schema}.once")
    bench.query(
        f"CREATE TRIGGER cut BEFORE INSERT ON {schema}.effects"
        f" FOR EACH ROW EXECUTE FUNCTION {schema}.cut()"
    )
    bench.run(*[bench.record(f"r{n}", "pay", {}) for n in range(6)])
    assert books(bench) == {("done", "ok", 1): 6}


def test_a_server_that_took_over_and_never_heard_of_the_transaction_has_not_committed_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that lacks the newest of what was written: its transaction ids are behind."""
    schema = bench.schema
    bench.query(f"CREATE SEQUENCE {schema}.once")
    bench.query(
        f"CREATE FUNCTION {schema}.cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF new.id = 'r3' AND nextval('{schema}.once') = 1 THEN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN new; END $$"
    )
    bench.query(
        f"CREATE TRIGGER cut BEFORE INSERT ON {schema}.effects"
        f" FOR EACH ROW EXECUTE FUNCTION {schema}.cut()"
    )
    known = Session.savepoint
    monkeypatch.setattr(Session, "savepoint", lambda self: known(self) + 1_000_000)
    monkeypatch.setattr(Session, "ended", lambda self, xid: False)
    report = bench.run(*[bench.record(f"r{n}", "pay", {}) for n in range(6)])
    assert (report.unclear, report.returned) == ([], [])
    assert books(bench) == {("done", "ok", 1): 6}
