"""`effect="transaction"` named by handlers without `tx`: the default, as where it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench, bench_with_effects


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(stack: Stack, schema: str, ran: list[str]) -> Iterator[Bench]:
    app = App()

    @app.handler("named", effect="transaction")
    def named(payload: Any, request: Request[Any]) -> Any:
        ran.append(request.id)
        return payload

    @app.batch_handler("batch", effect="transaction")
    def batch(requests: list[Request[Any]]) -> list[Any]:
        ran.extend(r.id for r in requests)
        return [r.payload for r in requests]

    @app.handler("newest", effect="transaction", coalesce=str)
    def newest(payload: Any) -> Any:
        return payload

    with bench_with_effects(app, stack.database, schema) as made:
        yield made


@pytest.mark.parametrize("kind", ["named", "batch"])
def test_it_is_journaled_and_runs_once(bench: Bench, ran: list[str], kind: str) -> None:
    bench.run(bench.record("a", kind, 1), bench.record("b", kind, 2))
    bench.run(bench.record("a", kind, 1))
    assert bench.rows() == {"a": ("done", "ok"), "b": ("done", "ok")}
    assert ran == ["a", "b"]
    assert (
        bench.query(f"SELECT effect FROM {bench.schema}.requests WHERE effect <> 'transaction'")
        == []
    )


def test_it_coalesces(bench: Bench) -> None:
    bench.run(bench.record("a", "newest", 1), bench.record("b", "newest", 1))
    assert sorted(bench.rows().values()) == [
        ("superseded", "superseded"),
        ("waiting", "coalescing"),
    ]
