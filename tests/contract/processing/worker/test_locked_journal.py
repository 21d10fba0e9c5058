"""Somebody locks a table of the journal, as a rebuilt index does, when a call outside has returned.

For longer than a statement waits for a lock: its end is written once the table is free. So it is
where its disk was full.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from feedback.journal.housekeeping import sweep_expired_claims
from processing import App, Request
from processing.worker import outages
from stack import Stack
from tests.support.executor import Bench
from tests.support.waiting import eventually

TRIES = 3
"""That meet the lock before it is let go of."""


class Locks:
    """What another session has locked, or filled."""

    def __init__(self, url: str, schema: str) -> None:
        self._url, self._schema = url, schema
        self._held = contextlib.ExitStack()
        self.tries = 0
        """That were in vain meanwhile."""
        self.at_call: Callable[[], None] = lambda: None

    def lock(self, table: str) -> None:
        holder = self._held.enter_context(psycopg.connect(self._url))
        holder.execute(f"LOCK TABLE {self._schema}.{table} IN SHARE MODE".encode())

    def fill(self, table: str) -> None:
        """Has no room for it."""
        name = f"{self._schema}.{table}"
        other = self._held.enter_context(psycopg.connect(self._url, autocommit=True))
        other.execute(
            f"""
            CREATE FUNCTION {self._schema}.full_disk() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$
        """.encode()
        )
        other.execute(
            f"""
            CREATE TRIGGER full_disk BEFORE INSERT ON {name} FOR EACH ROW
            EXECUTE FUNCTION {self._schema}.full_disk()
        """.encode()
        )
        self._held.callback(other.execute, f"DROP TRIGGER full_disk ON {name}".encode())

    def free(self) -> None:
        self._held.close()

    def pause(self, *_: Any) -> float:
        """In place of the one after a try in vain."""
        self.tries += 1
        if self.tries == TRIES:
            self.free()
        return 0.0


@pytest.fixture
def locks(stack: Stack, schema: str) -> Iterator[Locks]:
    made = Locks(stack.database, schema)
    yield made
    made.free()


@pytest.fixture
def bench(stack: Stack, schema: str, locks: Locks) -> Iterator[Bench]:
    app = App()

    @app.handler("charge", effect="external")
    def charge(payload: Any, request: Request[Any]) -> str:
        request.follow_up("tell", {}, request_id="told")
        locks.at_call()
        return "charged"

    @app.handler("charge.tx", effect="external")
    def charge_tx(payload: Any, request: Request[Any], tx: psycopg.Cursor[Any]) -> str:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        request.follow_up("tell", {}, request_id="told")
        locks.at_call()
        return "charged"

    @app.handler("tell")
    def tell(payload: Any) -> None:
        raise AssertionError("it waits")

    made = Bench(app, stack.database, schema, lock_timeout=0.05, results=True, lease=30.0)
    made.query(f"CREATE TABLE {schema}.effects (id text)")
    yield made
    made.executor.close()
    made.app.stop_worker()


@pytest.mark.parametrize("table", ["requests", "results", "full"])
@pytest.mark.parametrize("kind", ["charge", "charge.tx"])
def test_what_a_call_came_to_is_written_once_the_table_is_free(
    bench: Bench, locks: Locks, kind: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or has room. Nothing that its handler did in the database is lost, or written twice."""
    locks.at_call = lambda: locks.fill("results") if table == "full" else locks.lock(table)
    monkeypatch.setattr(outages.Backoff, "next", locks.pause)
    report = bench.run(bench.record("c", kind, {}))
    assert (report.unclear, report.database_up, locks.tries) == ([], True, TRIES)
    assert bench.rows() == {"c": ("done", "ok"), "told": ("waiting", "follow_up")}
    assert bench.state("c") == ("done", "ok")
    assert bench.effects() == (["c"] if kind == "charge.tx" else [])
    assert bench.query(f"SELECT request_id, state FROM {bench.schema}.results") == [("c", "done")]


@pytest.mark.parametrize("kind", ["charge", "charge.tx"])
def test_where_the_lock_outlasts_the_lease_it_is_in_doubt(
    bench: Bench, locks: Locks, kind: str
) -> None:
    """Until then its claim stands, and of what its handler did in the database nothing is left."""
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.05, lease=0.5)
    locks.at_call = lambda: locks.lock("requests")
    report = bench.run(bench.record("c", kind, {}))
    locks.free()
    assert (report.unclear, report.returned, report.database_up) == ([], [], False)
    assert (bench.rows(), bench.effects()) == ({"c": ("running", "claimed")}, [])
    with psycopg.connect(bench.url, autocommit=True) as housekeeper:
        eventually(lambda: sweep_expired_claims(housekeeper, schema=bench.schema))
    assert bench.rows() == {"c": ("in_doubt", "worker_died")}
