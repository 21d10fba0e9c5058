"""What a database, the environment, a URL or a handler say of a session changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from processing import App, Request
from processing.worker.session import Session
from stack import Stack
from tests.support.executor import Bench, bench_with_effects
from tests.support.pooler import Pooler


def test_an_id_is_the_same_in_every_encoding(stack: Stack, schema: str) -> None:
    """PGCLIENTENCODING says it as well, or a database that is not in UTF-8."""
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        return payload

    bench = Bench(app, stack.database, schema)
    bench.query(f"CREATE TABLE {schema}.effects (id text)")
    bench.executor = bench.another(f"{stack.database}?client_encoding=latin1")
    for _ in range(2):
        bench.run(bench.record("ünï", "pay", "é", key="ü".encode()))
    bench.executor.close()
    assert bench.rows() == {"ünï": ("done", "ok")}
    assert bench.effects() == ["ünï"]
    found = f"SELECT result, convert_from(key, 'UTF8') FROM {schema}.requests"
    assert bench.query(found) == [("é", "ü")]


@pytest.fixture
def setting(stack: Stack, schema: str) -> Iterator[Bench]:
    """Its handlers run what is sent to them, and keep the request's id as an effect."""
    app = App()

    def run(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        if payload:
            tx.execute(payload)
        return {"says": "é"}

    app.handler("pay")(run)
    app.handler("charge", effect="external")(run)
    with bench_with_effects(app, stack.database, schema) as made:
        yield made
    made.app.stop_worker()


@pytest.mark.parametrize("scope", ["LOCAL", "SESSION"])
def test_what_a_handler_sets_changes_no_row(setting: Bench, scope: str) -> None:
    """Neither that of its own request nor those that follow, in its transaction and after it."""
    said = f"SET {scope} client_encoding TO latin1; SET {scope} DateStyle TO German"
    sent = [("é1", "pay", said), ("é2", "pay", ""), ("é3", "charge", said), ("é4", "charge", "")]
    for _ in range(2):
        setting.run(*(setting.record(*one) for one in sent))
        for name, kind, payload in sent:
            setting.run(setting.record(name, kind, payload))
    names = [name for name, *_ in sent]
    assert setting.rows() == dict.fromkeys(names, ("done", "ok"))
    assert setting.effects() == names
    found = f"SELECT DISTINCT result->>'says' FROM {setting.schema}.requests"
    assert setting.query(found) == [("é",)]
    assert len(setting.backends) == 1


def test_a_session_s_own_form_of_times_does_not_matter(setting: Bench) -> None:
    setting.executor.close()
    setting.executor = setting.another(f"{setting.url}?options=-cDateStyle%3DGerman")
    for _ in range(2):
        setting.run(setting.record("a", "pay", ""))
    assert (setting.rows(), setting.effects()) == ({"a": ("done", "ok")}, ["a"])
    assert setting.state("a") == ("done", "ok")


def test_bounds_hold_through_a_proxy_that_pools_transactions_and_bind_nobody_else(
    stack: Stack, schema: str
) -> None:
    """It gives each of its connections in turn."""
    app = App()
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    seen: list[list[Any]] = []

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        seen.append([tx.execute(f"SHOW {name}".encode()).fetchone() for name in names])

    with closing(Pooler(stack.database, 20)) as pooler:
        bench = Bench(app, stack.database, schema)
        bench.executor.close()
        bench.executor = bench.another(
            pooler.url, prepare_threshold=None, lock_timeout=7.0, statement_timeout=8.0
        )
        for name in "abc":
            bench.run(bench.record(name, "pay", {}))
        bench.executor.close()
        assert pooler.switched
        for name in names:
            assert pooler.shown(name) == {"0"}
    for lock, statement, idle in seen:
        assert (lock, statement) == (("7s",), ("8s",))
        assert idle != ("0",)
    assert set(bench.rows().values()) == {("done", "ok")}


def test_a_lock_is_waited_for_as_long_as_the_database_can_count(stack: Stack) -> None:
    session = Session(
        stack.database, lambda _: None, lock_timeout=3e8, statement_timeout=3e8, idle_timeout=1e15,
        prepare_threshold=None,
    )  # fmt: skip
    session.connect()
    session.begin()
    session.wait_at_most(None)
    assert session.cursor().execute("SHOW lock_timeout").fetchone() == ("2147483647ms",)
    session.commit()
    session.connection.close()
