"""A database server that crashes, forgets a transaction, and gives its id out again."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from feedback.journal.commits import LIFE, Commits, Fate, fate_of
from feedback.journal.migrations import migrate
from processing import App, Request
from stack import Stack
from stack.external import VARIABLES
from tests.support import eventually, run
from tests.support.executor import Bench, chunk_run

entered: list[str] = []


pytestmark = pytest.mark.long  # has a stack of its own; the chaos run crashes the server, too


def make_app(schema: str, stack: Stack) -> App:
    app = App()
    entered.clear()

    @app.handler("pay")
    def pay(payload: str, request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
        entered.append(request.id)
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        if payload == "crash" and entered.count(request.id) == 1:
            row = tx.execute("SELECT pg_current_xact_id()::text").fetchone()
            assert row is not None
            stack.stop_database(kill=True)
            stack.start_database()
            commit_under(row[0], stack)
            tx.execute("SELECT 1")

    return app


def commit_under(number: str, stack: Stack) -> None:
    """Somebody else's transactions, until one of them has this id."""
    with psycopg.connect(stack.database, autocommit=True) as line:
        line.execute("CREATE TABLE IF NOT EXISTS others (n int)")
        while fate_of(line, number) is not Fate.COMMITTED:
            line.execute("INSERT INTO others VALUES (1)")


@pytest.fixture(scope="module")
def own_stack(stack: Stack) -> Iterator[Stack]:
    """One without a broker of its own, which takes as long to start as all the rest."""
    with pytest.MonkeyPatch.context() as given:
        given.setenv(VARIABLES["kafka"], stack.kafka)
        made = run.own_stack(f"crashed-{uuid.uuid4().hex[:8]}")
    yield made
    made.down(delete=True)


@pytest.fixture
def bench(own_stack: Stack) -> Iterator[Bench]:
    schema = f"test_{uuid.uuid4().hex[:12]}"
    migrate(own_stack.database, schema)
    made = Bench(make_app(schema, own_stack), own_stack.database, schema)
    made.query(f"CREATE TABLE {schema}.effects (id text)")
    with psycopg.connect(own_stack.database, autocommit=True) as line:
        line.execute("CHECKPOINT")
    yield made
    made.executor.close()
    made.app.stop_worker()


def test_what_a_crash_has_undone_is_not_done_though_somebody_else_commits_under_its_id(
    bench: Bench,
) -> None:
    records = [bench.record(name, "pay", "crash" if name == "b" else "") for name in "abc"]
    report = bench.run_chunk(chunk_run(records))
    assert (report.returned, report.unclear) == ([], [0, 1])
    assert (bench.rows(), bench.effects()) == ({"c": ("done", "ok")}, ["c"])
    report = bench.run_chunk(chunk_run(records[:2]))
    assert report.returned == report.unclear == []
    assert bench.rows() == dict.fromkeys("abc", ("done", "ok"))
    assert sorted(bench.effects()) == ["a", "b", "c"]


def life_of(connection: psycopg.Connection[Any]) -> str:
    [(life,)] = connection.execute(f"SELECT {LIFE}".encode()).fetchall()
    return str(life)


@pytest.mark.parametrize("kill", ["the server", "one backend"])
def test_what_a_server_has_forgotten_in_a_crash_is_not_taken_for_committed(
    own_stack: Stack, kill: str
) -> None:
    """It gives the same ids out again: what is committed under one may be somebody else's."""
    lost: list[str] = []
    commits: Commits[str] = Commits(lost=lost.extend)
    with psycopg.connect(own_stack.database, autocommit=True) as line:
        line.execute("CREATE TABLE IF NOT EXISTS seen (n int)")
        line.execute("CHECKPOINT")
        before = life_of(line)
        with pytest.raises(psycopg.Error), commits.transaction(line) as facts:  # noqa: PT012
            line.execute("INSERT INTO seen VALUES (1)")
            [(number,)] = line.execute("SELECT pg_current_xact_id()::text").fetchall()
            facts.append("never there")
            if kill == "the server":
                own_stack.stop_database(kill=True)
            else:
                os.kill(line.info.backend_pid, signal.SIGKILL)
            line.execute("SELECT 1")
    assert lost == ["never there"], "it had not come to its COMMIT"
    own_stack.heal()
    with eventually(lambda: connected(own_stack.database)) as line:
        assert life_of(line) != before
        while fate_of(line, number) is Fate.UNDONE:
            line.execute("INSERT INTO seen VALUES (2)")
        assert fate_of(line, number) is Fate.COMMITTED, "by another one that has its id"
        assert fate_of(line, number, before) is Fate.UNKNOWN
        assert life_of(line) == life_of(line)


def connected(url: str) -> psycopg.Connection[Any] | None:
    """A connection, once the server takes some again."""
    try:
        return psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError:
        return None
