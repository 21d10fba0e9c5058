"""What a handler leaves open on the worker's connection: it alone bears it, and nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Reject, Request, Retry
from processing.worker.failures import Failures
from processing.worker.leftovers import close_leftovers
from stack import Stack
from tests.support.executor import Bench, bench_with_effects

DONE = ("done", "ok")
FAILED = ("failed", "handler_error")
NAMES = "abcde"

kept: list[Any] = []
"""What the handlers hold on to when they have returned."""


def leave_open(how: str, tx: Any) -> None:
    """Opens it and lets go of nothing."""
    match how:
        case "stream":
            rows = tx.stream("SELECT generate_series(1, 100000)")
            next(rows)
            kept.append(rows)
        case "copy in":
            block = tx.copy("COPY pg_temp.left_open FROM STDIN")
            block.__enter__().write_row((1,))
            kept.append(block)
        case "copy out":
            block = tx.copy("COPY (SELECT generate_series(1, 100000)) TO STDOUT")
            block.__enter__().read()
            kept.append(block)
        case "pipeline":
            kept.append(tx.connection.pipeline())
            kept[-1].__enter__()
            tx.execute("SELECT 1")
        case "notifies":
            kept.append(tx.connection.notifies(timeout=0.01))
            tx.execute("SELECT pg_notify('x', '')")
            tx._conn._notifies_backlog.append(psycopg.Notify("x", "", 0))
            next(kept[-1])
        case "thread":
            other = tx.connection.cursor()
            kept.append(threading.Thread(target=_sleep, args=(other,)))
            kept[-1].start()
            while not tx._conn.lock.locked():
                pass


def _sleep(cursor: Any) -> None:
    try:
        cursor.execute("SELECT pg_sleep(600)")
    except psycopg.Error:
        return


def make_app(schema: str) -> App:
    app = App()

    def pay(payload: Any, tx: Any, request: Request[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        tx.execute("CREATE TEMP TABLE IF NOT EXISTS left_open (n int) ON COMMIT DROP")
        if payload:
            leave_open(payload["open"], tx)
            if payload["raise"]:
                raise ValueError("bad row")

    app.handler("pay")(pay)

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]], tx: Any) -> list[Any]:
        for request in requests:
            pay(request.payload, tx, request)
        return [None] * len(requests)

    return app


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    with bench_with_effects(make_app(schema), stack.database, schema) as made:
        yield made


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    for thread in kept:
        if isinstance(thread, threading.Thread):
            thread.join(30)
    kept.clear()


def run(bench: Bench, *records: Any) -> Any:
    """Runs a chunk beside the test, which so fails where it would wait for ever."""
    reports: list[Any] = []
    worker = threading.Thread(target=lambda: reports.append(bench.run(*records)), daemon=True)
    worker.start()
    worker.join(30)
    assert reports, "the worker waits for what a handler has left open"
    return reports[0]


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "returns"])
@pytest.mark.parametrize("how", ["stream", "copy in", "copy out", "pipeline", "notifies", "thread"])
def test_what_is_left_open_is_the_end_of_its_request_alone(
    bench: Bench, how: str, raises: bool
) -> None:
    left = {"open": how, "raise": raises}
    report = run(bench, *(bench.record(n, "pay", left if n == "c" else {}) for n in NAMES))
    rows = bench.rows()
    assert (report.returned, report.unclear, report.database_up) == ([], [], True)
    assert {n: rows[n] for n in "abde"} == dict.fromkeys("abde", DONE)
    if raises:
        assert rows["c"] == FAILED
        (error,) = [s["error"] for s in bench.statuses if s["id"] == "c"]
        assert error.startswith("ValueError: bad row")
        closed = how not in ("stream", "copy in", "copy out")
        assert ("left something open" in error) == closed
    elif how not in ("stream", "copy out"):
        assert rows["c"][0] == "failed"
    # Of what is read all may have come before it was cut off: then nothing is broken.
    assert sorted(bench.effects()) == [n for n in NAMES if rows[n] == DONE]


def test_a_handler_that_raises_while_it_reads_rows_has_failed_with_its_own_error(
    stack: Stack, schema: str
) -> None:
    """The exception keeps the frame, and the frame the rows."""
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: Any) -> None:
        tx.execute("SELECT 1")
        if payload:
            rows = tx.stream("SELECT generate_series(1, 100000)")
            for (n,) in rows:
                if n == 3:
                    raise ValueError("bad row")

    bench = Bench(app, stack.database, schema)
    run(bench, *(bench.record(n, "pay", n == "c") for n in NAMES))
    assert bench.rows() == dict.fromkeys("abde", DONE) | {"c": FAILED}
    assert [s["error"] for s in bench.statuses if s["id"] == "c" and "error" in s] != []
    bench.executor.close()


@pytest.mark.parametrize("raised", [Reject("no_funds"), Retry(after=60), OSError("away")])
@pytest.mark.parametrize("how", ["pipeline", "thread"])
def test_what_its_handler_meant_counts_also_where_it_left_something_open(
    stack: Stack, schema: str, how: str, raised: Exception
) -> None:
    app = App()

    @app.handler("pay", retries=1)
    def pay(payload: Any, tx: Any, request: Request[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        if payload:
            request.follow_up("pay", None, request_id="never")
            leave_open(how, tx)
            raise raised

    with bench_with_effects(app, stack.database, schema) as bench:
        run(bench, *(bench.record(n, "pay", n == "c") for n in NAMES))
        ends = {
            Reject: ("rejected", "no_funds"), Retry: ("waiting", "retry"),
            OSError: ("waiting", "handler_error"),
        }  # fmt: skip
        assert bench.rows() == dict.fromkeys("abde", DONE) | {"c": ends[type(raised)]}
        assert bench.effects() == ["a", "b", "d", "e"]


def test_rows_that_a_batch_left_unread_keep_nobody_waiting(bench: Bench) -> None:
    left = {"open": "stream", "raise": True}
    run(bench, bench.record("a", "batch", {}), bench.record("b", "batch", left))
    run(bench, bench.record("c", "pay", {}), bench.record("d", "pay", {}))
    assert (bench.state("a"), bench.state("b")) == (FAILED, FAILED)
    assert (bench.state("c"), bench.state("d")) == (DONE, DONE)


def test_rows_that_were_let_go_of_are_in_nobodys_way(stack: Stack, schema: str) -> None:
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: Any) -> int:
        for _ in tx.stream("SELECT generate_series(1, 3)"):
            pass
        with tx.copy("COPY (SELECT 1) TO STDOUT") as copy:
            list(copy)
        tx.execute("SELECT 7")
        return int(tx.fetchone()[0])

    bench = Bench(app, stack.database, schema)
    run(bench, *(bench.record(n, "pay", {}) for n in NAMES))
    assert bench.rows() == dict.fromkeys(NAMES, DONE)
    bench.executor.close()


def test_what_a_thread_is_in_is_cut_and_not_freed(stack: Stack) -> None:
    """Freed under it, what it does next is done to memory that is another's."""
    connection = psycopg.connect(stack.database, autocommit=True)
    connection.lock.acquire()  # as one has it that waits for the server
    assert close_leftovers(connection, Failures())
    assert not connection.closed
    connection.lock.release()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    assert connection.closed
