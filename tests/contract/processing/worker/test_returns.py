"""What comes back again and again as the journal cannot be written, though a probe finds it can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from processing import App, Request
from processing.worker import outages
from stack import Stack
from tests.support.executor import Bench
from tests.support.proxy import Proxy


@pytest.fixture
def app(schema: str) -> App:
    app = App()

    @app.handler("pay")
    def pay(payload: Any, request: Request, tx: psycopg.Cursor[Any]) -> None:
        tx.execute("SELECT 1")

    return app


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(outages, "STOPPING", Mock(wait=waited.append, leaving=False))
    return waited


@pytest.fixture
def bench(stack: Stack, through: str, schema: str, app: App) -> Iterator[Bench]:
    made = Bench(app, stack.database, schema)
    made.executor.close()
    made.executor = made.another(through)
    yield made
    made.executor.close()
    app.stop_worker()


def rename(bench: Bench, before: str, after: str) -> None:
    bench.query(f"ALTER TABLE {bench.schema}.requests RENAME COLUMN {before} TO {after}")


def given_back(bench: Bench, name: str) -> None:
    report = bench.run(bench.record(name, "pay", {}))
    assert (report.database_up, report.returned) == (False, [0])


def test_pauses_double_until_something_is_committed(bench: Bench, pauses: list[float]) -> None:
    rename(bench, "reason", "other")
    given_back(bench, "a")
    assert pauses == []  # its connection may have been all that was wrong
    for _ in range(9):
        given_back(bench, "a")
    longest = outages.LONGEST_PAUSE
    assert len(pauses) == 9
    assert max(pauses[:2]) < longest / 4
    assert min(pauses[-2:]) >= longest / 2
    assert max(pauses) <= longest
    rename(bench, "other", "reason")
    bench.run(bench.record("a", "pay", {}))
    assert bench.rows() == {"a": ("done", "ok")}
    rename(bench, "reason", "other")
    given_back(bench, "b")
    assert len(pauses) == 9
    rename(bench, "other", "reason")


def test_nobody_pauses_who_finds_no_database(
    bench: Bench, proxy: Proxy, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To try for a connection has taken its time, and whoever probes finds the same."""
    monkeypatch.setattr(outages, "PATIENCE", 0.0)
    bench.run(bench.record("a", "pay", {}))
    proxy.cut()
    for _ in range(3):
        given_back(bench, "b")
    assert pauses == []
