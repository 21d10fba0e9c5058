"""One exception that is raised again and again: a module's own, or what a Future failed with."""

from __future__ import annotations

import gc
import traceback
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from processing import App, Reject, Request, Retry
from stack import Stack
from tests.support.executor import Bench


@dataclass(frozen=True)
class Busy(Exception):
    """Lets nobody set attributes."""

    until: int = 7


class Held:
    """What a handler has in its variables."""


HELD: list[weakref.ref[Held]] = []
FRAMES: list[list[int]] = []
"""Of the exceptions that an on_error hook is told of, and of what led to them: how many each."""


def result_of(future: Future[None]) -> None:
    """As handlers do that wait for what a start hook has begun."""
    held = Held()
    HELD.append(weakref.ref(held))
    future.result()


def make_app(future: Future[None]) -> App:
    app = App()

    @app.on_error
    def tell(error: BaseException, request: Request[Any]) -> None:
        met: list[int] = []
        one: BaseException | None = error
        while one is not None:
            met.append(len(traceback.extract_tb(one.__traceback__)))
            one = one.__cause__
        FRAMES.append(met)

    @app.handler("raises")
    def raises(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        result_of(future)

    @app.handler("raises from")
    def raises_from(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        try:
            result_of(future)
        except Exception as error:
            raise RuntimeError("no rates") from error

    @app.batch_handler("batch raises")
    def batch_raises(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        result_of(future)
        return []

    @app.batch_handler("batch returns")
    def batch_returns(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        results: list[Any] = []
        for _ in requests:
            try:
                result_of(future)
            except Exception as error:  # noqa: BLE001 - whatever it is
                results.append(error)
        return results

    app.handler("validates", not_before=lambda _: result_of(future))(raises)
    return app


@pytest.fixture(autouse=True)
def _forget() -> None:
    HELD.clear()
    FRAMES.clear()


@pytest.mark.parametrize(
    "error", [Reject("no_funds"), Retry(after=60), ValueError("x"), Busy()], ids=repr
)
@pytest.mark.parametrize(
    "kind", ["raises", "raises from", "batch raises", "batch returns", "validates"]
)
def test_it_keeps_nothing_of_the_runs_that_it_ended(
    stack: Stack, schema: str, error: Exception, kind: str
) -> None:
    future: Future[None] = Future()
    future.set_exception(error)
    bench = Bench(make_app(future), stack.database, schema)
    for chunk in range(3):
        bench.run(*(bench.record(f"{chunk} {n}", kind, {}) for n in range(5)))
    bench.executor.close()
    bench.app.stop_worker()
    assert len(HELD) >= 3
    assert len(bench.rows()) == 15
    assert error.__traceback__ is None
    gc.collect()
    assert [ref for ref in HELD if ref() is not None] == []
    if kind != "batch returns":  # there one is raised several times in one run
        assert len({str(met) for met in FRAMES}) == bool(FRAMES), "each has its own run's alone"
    if not isinstance(error, Reject | Retry) or kind == "raises from":
        assert len(FRAMES) == 15
        assert all(FRAMES[0])
