"""What expires while it waits in a worker for those ahead of it is not started any more."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from feedback.contract.times import moment
from processing import App, Request
from processing.worker import task
from stack import Stack
from tests.support.executor import Bench

EXPIRES = moment(2_000_000_010).isoformat()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """By which it is seen what has expired."""
    made = SimpleNamespace(now=2_000_000_000.0)
    monkeypatch.setattr(task, "time", SimpleNamespace(time=lambda: made.now))
    return made


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(  # noqa: C901 - a list of handlers
    stack: Stack, schema: str, ran: list[str], clock: SimpleNamespace
) -> Iterator[Bench]:
    app = App()

    def run(request: Request[Any]) -> None:
        ran.append(request.id)

    @app.handler("slow")
    def slow(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        run(request)
        clock.now += 20

    @app.handler("one")
    def one(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        run(request)

    @app.handler("piped", pipeline=True)
    def piped(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        run(request)

    @app.handler("plain")
    def plain(payload: Any, request: Request[Any]) -> None:
        run(request)

    @app.handler("pure", effect="none")
    def pure(payload: Any, request: Request[Any]) -> None:
        run(request)

    @app.handler("pure and slow", effect="none")
    def pure_and_slow(payload: Any, request: Request[Any]) -> None:
        run(request)
        clock.now += 20

    @app.handler("charge", effect="external")
    def charge(payload: Any, request: Request[Any]) -> None:
        run(request)

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[None]:
        for request in requests:
            run(request)
        return [None] * len(requests)

    made = Bench(app, stack.database, schema)
    yield made
    made.executor.close()


@pytest.mark.parametrize("kind", ["one", "piped", "plain", "charge", "batch"])
def test_it_is_rejected_and_its_neighbours_run(bench: Bench, ran: list[str], kind: str) -> None:
    late = bench.record("b", kind, {}, key=b"k", ce_expirytime=EXPIRES)
    report = bench.run(
        bench.record("a", "slow", {}, key=b"k"), late, bench.record("c", kind, {}, key=b"k")
    )
    assert (ran, report.returned, report.unclear) == (["a", "c"], [], [])
    assert bench.rows() == {
        "a": ("done", "ok"),
        "b": ("rejected", "expired"),
        "c": ("done", "ok"),
    }
    bench.run(late)
    assert ran == ["a", "c"]


def test_so_is_pure_computation(bench: Bench, ran: list[str]) -> None:
    bench.run(
        bench.record("a", "pure and slow", {}),
        bench.record("b", "pure", {}, ce_expirytime=EXPIRES),
        bench.record("c", "pure", {}),
    )
    assert ran == ["a", "c"]
    assert bench.state("b") == ("rejected", "expired")


@pytest.mark.parametrize("kind", ["one", "batch"])
def test_alone_it_is_rejected_as_well(bench: Bench, ran: list[str], kind: str) -> None:
    bench.run(
        bench.record("a", "slow", {}, key=b"k"),
        bench.record("b", kind, {}, key=b"k", ce_expirytime=EXPIRES),
    )
    assert (ran, bench.rows()["b"]) == (["a"], ("rejected", "expired"))
