"""A handler has the server forget the statements that the driver keeps there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench, bench_with_effects

OFTEN = 8
"""More often than a statement runs before the server keeps it."""
FORGET = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"
"""The driver sees none of it."""


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    """Its handlers keep the request's id as an effect, and run what is sent to them."""
    app = App()

    def run(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        if payload:
            tx.execute(payload)

    app.handler("pay")(run)
    app.handler("pipelined", pipeline=True)(run)
    app.handler("charge", effect="external")(run)
    with bench_with_effects(app, stack.database, schema) as made:
        yield made
    made.app.stop_worker()


def run(bench: Bench, kind: str, *payloads: str) -> set[tuple[str, str]]:
    """States and codes of requests of one chunk; each done one has its effect once, no other."""
    names = [f"{kind} {bench.number} {n}" for n in range(len(payloads))]
    report = bench.run(*(bench.record(n, kind, p) for n, p in zip(names, payloads, strict=True)))
    assert (report.returned, report.unclear, report.database_up) == ([], [], True)
    rows = {name: end for name, end in bench.rows().items() if name in names}
    assert len(rows) == len(names)
    done = sorted(name for name, end in rows.items() if end == ("done", "ok"))
    assert [e for e in bench.effects() if e in names] == done
    return {*rows.values()}


@pytest.mark.parametrize("kind", ["pay", "pipelined"])
@pytest.mark.parametrize("culprits", [1, OFTEN])
def test_nobody_fails_for_it(bench: Bench, kind: str, culprits: int) -> None:
    """Neither who forgets, nor who shares its transaction, nor who comes later."""
    none = [""] * OFTEN
    assert run(bench, kind, *none) == {("done", "ok")}
    assert run(bench, kind, *none, *[FORGET] * culprits, *none) == {("done", "ok")}
    for _ in range(OFTEN):
        assert run(bench, kind, *none) == {("done", "ok")}


def test_a_call_outside_that_forgets_them_is_in_doubt_and_no_other_is(bench: Bench) -> None:
    """What it did in its transaction is undone, and it may not run again."""
    none = [""] * OFTEN
    doubted = ["SELECT nothing()"] * OFTEN  # what writes such an end is kept as well
    assert run(bench, "charge", *none) == {("done", "ok")}
    assert run(bench, "charge", *doubted) == {("in_doubt", "handler_error")}
    assert run(bench, "charge", FORGET) == {("in_doubt", "handler_error")}
    for _ in range(OFTEN):
        assert run(bench, "charge", *none) == {("done", "ok")}


def test_a_statement_of_its_own_that_is_unknown_is_its_own_error(bench: Bench) -> None:
    none = [""] * OFTEN
    assert run(bench, "pay", *none, "EXECUTE mine") == {("done", "ok"), ("failed", "handler_error")}
    assert len(bench.backends) == 1
