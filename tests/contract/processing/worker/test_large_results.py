"""Results that the journal could take and not give back: they end their own request alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import psycopg
import pytest

from feedback.contract.payloads import LARGEST_RESULT, unstorable
from processing import App, Request
from stack import Stack
from tests.support.executor import Bench, bench_with_effects
from tests.support.queries import Queries

LONGEST = 1e-300
"""jsonb writes all of its digits, and it is six bytes of JSON."""


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    @app.handler("numbers")
    def numbers(payload: int, tx: psycopg.Cursor[Any], request: Request[Any]) -> list[float]:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        return [LONGEST] * payload

    with bench_with_effects(app, stack.database, schema) as made:
        yield made
    made.app.stop_worker()


def test_one_that_grows_in_the_journal_fails_and_its_neighbours_are_done(bench: Bench) -> None:
    sent = [bench.record("a", "numbers", 2), bench.record("b", "numbers", 230_000)]
    for _ in range(2):
        bench.run(*sent, bench.record("c", "numbers", 2))
        assert bench.rows() == {
            "a": ("done", "ok"), "b": ("failed", "handler_error"), "c": ("done", "ok"),
        }  # fmt: skip
    assert bench.effects() == ["a", "c"]
    [(error,)] = bench.query(f"SELECT error FROM {bench.schema}.requests WHERE id = 'b'")
    assert "as the journal writes it" in error
    assert str(LARGEST_RESULT) in error


@pytest.mark.parametrize(
    "value",
    [
        [5e-324, -5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, -1.2e-7, 1e16],
        {"a": [1, 2, {"b": None}], 'é\n\t"': ["e5,", ":", True]},
        ["x" * 100, -(2**63), 0.1],
    ],
)
def test_what_is_reckoned_is_at_least_what_postgresql_writes(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    data = orjson.dumps(value)
    [(size,)] = Queries(stack.database)("SELECT octet_length((%s::jsonb)::text)", data.decode())
    monkeypatch.setattr("feedback.contract.payloads.LARGEST_RESULT", size - 1)
    assert unstorable(data) is not None
