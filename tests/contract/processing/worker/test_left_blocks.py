"""A `transaction()` block that a handler leaves open, and that is collected while others run."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench, bench_with_effects


class UnitOfWork:
    """Is in a reference cycle, and so has what it opened with it."""

    def __init__(self, tx: psycopg.Cursor[Any], how: str) -> None:
        self.me = self
        self.outer = tx.connection.transaction() if how == "blocks" else self._wrapped(tx)
        self.outer.__enter__()
        self.inner = tx.connection.transaction()
        self.inner.__enter__()

    @contextlib.contextmanager
    def _wrapped(self, tx: psycopg.Cursor[Any]) -> Iterator[None]:
        with tx.connection.transaction():
            yield


def make_app(schema: str) -> App:
    app = App()

    def leave(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        work = UnitOfWork(tx, payload["how"])
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        if payload["raise"]:
            raise ValueError(f"bad row {id(work)}")

    def collect(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        if payload["in"] == "stream":  # within the connection's lock
            for _ in tx.stream("SELECT generate_series(1, 3)"):
                gc.collect()
        else:
            gc.collect()

    @app.handler("leave full")
    def leave_full(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        leave(payload, tx, request)
        tx.execute("DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$")

    app.handler("leave")(leave)
    app.handler("leave piped", pipeline=True)(leave)
    app.handler("leave outside", effect="external")(leave)
    app.handler("collect")(collect)

    @app.batch_handler("leave batch")
    def leave_batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        for request in requests:
            leave(request.payload, tx, request)
        return [None] * len(requests)

    return app


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    with bench_with_effects(make_app(schema), stack.database, schema) as made:
        yield made


@pytest.fixture(autouse=True)
def _collects_when_told() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("place", ["stream", "statement"])
@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("kind", ["leave", "leave piped", "leave outside", "leave batch"])
def test_it_has_ended_with_its_run(bench: Bench, kind: str, raises: bool, place: str) -> None:
    ways = {"left 0": "blocks", "left 1": "wrapped"}
    left = [bench.record(n, kind, {"how": how, "raise": raises}) for n, how in ways.items()]
    others = [bench.record(f"other {n}", "collect", {"in": place}) for n in range(3)]
    worker = threading.Thread(target=lambda: bench.run(*left, *others), daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive(), "the worker waits for itself"
    rows = bench.rows()
    assert {n: s for n, s in rows.items() if n.startswith("other")} == dict.fromkeys(
        ("other 0", "other 1", "other 2"), ("done", "ok")
    )
    failed = "in_doubt" if kind == "leave outside" else "failed"
    end = (failed, "handler_error") if raises else ("done", "ok")
    assert (rows["left 0"], rows["left 1"]) == (end, end)
    assert bench.effects() == sorted(name for name, (state, _) in rows.items() if state == "done")
    assert len(bench.backends) == 1


def test_one_that_was_left_where_the_disk_seemed_full_is_in_nobodys_way(bench: Bench) -> None:
    """Whether the database takes writes is asked in a transaction of psycopg's."""
    left = bench.record("left", "leave full", {"how": "blocks", "raise": False})
    bench.run(left, bench.record("other", "collect", {"in": "statement"}))
    assert bench.rows() == {"left": ("failed", "handler_error"), "other": ("done", "ok")}
    assert bench.effects() == ["other"]
    assert len(bench.backends) == 1
