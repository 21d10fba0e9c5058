"""A suspect that a database refuses to look up, though it works."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from stack import Stack
from tests.support.workers import Workers


@pytest.fixture
def role(stack: Stack, schema: str) -> Iterator[str]:
    """A role with the rights of a worker, named as the schema."""
    with psycopg.connect(stack.database, autocommit=True) as database:
        name = sql.Identifier(schema)

        def run(text: str) -> None:
            database.execute(sql.SQL(text).format(r=name, s=name))  # type: ignore[arg-type]

        run("CREATE ROLE {r} LOGIN PASSWORD 'worker'")
        run("GRANT ALL ON SCHEMA {s} TO {r}")
        run("GRANT ALL ON ALL TABLES IN SCHEMA {s} TO {r}")
        run("GRANT ALL ON ALL SEQUENCES IN SCHEMA {s} TO {r}")
        yield schema
        run("DROP OWNED BY {r} CASCADE")
        run("DROP ROLE {r}")


@pytest.mark.long
def test_it_is_tried_now_and_then_until_it_is_allowed(
    make: Callable[..., Workers], stack: Stack, role: str, tmp_path: Path
) -> None:
    at = conninfo_to_dict(stack.database)
    url = f"postgresql://{role}:worker@{at['host']}:{at['port']}/{at['dbname']}"
    workers = make(workers=2, ordering="key", database_url=url)
    workers.start()
    workers.warm()
    told, go_on = tmp_path / "told", tmp_path / "go-on"
    workers.submit("held", do=f"tell {told} await {go_on}")
    workers.until(told.exists)
    supervisor = workers.supervisor
    with psycopg.connect(stack.database, autocommit=True) as database:
        # Of one column it stays: who tries the database finds nothing that is missing.
        database.execute(f"REVOKE SELECT ON {role}.requests FROM {role}".encode())
        database.execute(f"GRANT SELECT (id) ON {role}.requests TO {role}".encode())
        busy = next(w.number for w in supervisor._pool.workers.values() if w.chunks)
        pid = supervisor._processes.pid(busy)
        os.kill(pid, signal.SIGKILL)
        go_on.touch()
        workers.until(lambda: pid not in workers.pids)
        workers.until(lambda: supervisor.kept_back == supervisor.in_hand == 1)
        dispatch = supervisor._pool._dispatch
        sent = dispatch._next_chunk
        workers.until(lambda: dispatch._next_chunk >= sent + 2)
        workers.until(lambda: supervisor.kept_back == supervisor.in_hand == 1)
        database.execute(f"GRANT SELECT ON {role}.requests TO {role}".encode())
    workers.finish()
    assert workers.states()["held"] == ("done", "ok")
    workers.check_effects()
