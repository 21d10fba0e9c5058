"""What is heard of handlers that fail: in the log, and by the app's own hooks."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Reject, Request
from processing.logs import configure
from stack import Stack
from tests.support.executor import Bench, bench_with_effects


class Tracker:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []


@pytest.fixture
def tracker() -> Tracker:
    return Tracker()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """All that is logged, as JSON."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = threading.excepthook, sys.unraisablehook
    stream = io.StringIO()
    configure("json", stream=stream)
    yield stream
    root.handlers[:], root.level = handlers, level
    threading.excepthook, sys.unraisablehook = hooks


@pytest.fixture
def bench(stack: Stack, schema: str, tracker: Tracker) -> Iterator[Bench]:
    app = App()

    @app.on_worker_start
    def tracking() -> dict[str, Tracker]:
        return {"tracker": tracker}

    @app.on_error
    def tell(error: BaseException, request: Request, tracker: Tracker) -> None:
        tracker.heard.append((request.id, str(error)))
        raise RuntimeError("the tracker is away")

    @app.handler("pay", retries=1)
    def pay(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        logging.getLogger("shop").info("paying")
        if payload == "reject":
            raise Reject("no_funds")
        if payload == "sql":
            tx.execute("SELECT 1/0")
        if payload == "raise":
            raise ValueError("boom")

    made = Bench(app, stack.database, schema)
    yield made
    made.executor.close()
    made.app.stop_worker()


def logged(lines: io.StringIO, message: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line for line in found if line["message"] == message]


def test_a_failure_is_a_warning_with_its_traceback(
    bench: Bench, tracker: Tracker, lines: io.StringIO
) -> None:
    names = [("a", "fine"), ("b", "sql"), ("c", "reject"), ("d", "raise"), ("e", "fine")]
    bench.run(*(bench.record(name, "pay", payload) for name, payload in names))
    first, second = logged(lines, "handler failed")
    assert (first["request_id"], first["type"], first["level"]) == ("b", "pay", "warning")
    assert (first["attempt"], first["becomes"]) == (1, "waiting")
    assert "division by zero" in first["exception"]
    assert 'tx.execute("SELECT 1/0")' in first["exception"]
    assert second["request_id"] == "d"
    (row,) = bench.query(f"SELECT error FROM {bench.schema}.requests WHERE id = 'b'")
    assert row[0].endswith("in pay)"), "the place is the handler's, not the driver's"
    [(kept,)] = bench.query(f"SELECT traceback FROM {bench.schema}.attempts WHERE request_id = 'b'")
    assert 'tx.execute("SELECT 1/0")' in kept
    assert kept.endswith("DivisionByZero: division by zero")
    assert tracker.heard == [("b", "division by zero"), ("d", "boom")]
    assert len(logged(lines, "on_error failed")) == 2


def test_a_flood_of_failures_is_a_trickle(
    bench: Bench, tracker: Tracker, lines: io.StringIO
) -> None:
    began = time.monotonic()
    bench.run(*(bench.record(f"r{n}", "pay", "raise") for n in range(40)))
    took = time.monotonic() - began
    assert len(logged(lines, "handler failed")) <= 5 * (1 + int(took))
    assert len(tracker.heard) == 40


def test_lines_of_handlers_name_their_request(bench: Bench, lines: io.StringIO) -> None:
    bench.run(bench.record("a", "pay", None), bench.record("b", "pay", "fine"))
    bench.run(bench.record("c", "pay", "fine"))
    logging.getLogger("shop").info("idle")
    said = {(line.get("request_id"), line.get("type")) for line in logged(lines, "paying")}
    assert said == {("b", "pay"), ("c", "pay")}
    (idle,) = logged(lines, "idle")
    assert "request_id" not in idle


def test_a_hook_cannot_ask_for_a_follow_up(stack: Stack, schema: str, lines: io.StringIO) -> None:
    """What the run came to is written: nothing would write it."""
    app = App()

    @app.on_error
    def tell(error: BaseException, request: Request[Any]) -> None:
        request.follow_up("pay", "again")

    @app.handler("pay", retries=1)
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        raise ValueError("boom")

    bench = Bench(app, stack.database, schema)
    bench.run(bench.record("a", "pay", ""))
    bench.executor.close()
    app.stop_worker()
    (line,) = logged(lines, "on_error failed")
    assert "on_error hook" in line["exception"]
    assert bench.rows() == {"a": ("waiting", "handler_error")}


@pytest.mark.parametrize(
    "strike",
    [
        "DO $$ BEGIN RAISE deadlock_detected; END $$",
        "SELECT pg_terminate_backend(pg_backend_pid())",
    ],
)
def test_what_others_met_is_no_context_of_a_failure(stack: Stack, schema: str, strike: str) -> None:
    app = App()
    entered: list[str] = []
    told: list[tuple[str, BaseException | None]] = []

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request) -> None:
        assert sys.exception() is None
        entered.append(request.id)
        if request.id == "struck" and entered.count("struck") <= 2:
            tx.execute(strike)
        if request.id == "wrong":
            raise ValueError("its own")

    @app.on_error
    def tell(error: BaseException, request: Request) -> None:
        told.append((f"{request.id}: {error}", error.__context__))

    with bench_with_effects(app, stack.database, schema) as bench:
        bench.run(*(bench.record(name, "pay", 1) for name in ("struck", "wrong")))
        assert told == [("wrong: its own", None)]
        assert bench.rows()["struck"] == ("done", "ok")
