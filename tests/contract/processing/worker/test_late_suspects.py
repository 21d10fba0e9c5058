"""Checks are asked: of suspects after the claims of their dead worker have run out, and at all.

And of suspects that are no requests nothing is lost.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest

from feedback.journal.housekeeping import sweep_expired_claims
from feedback.journal.writer import JournalWriter
from processing import App, Done, NotDone, Request, Unknown
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.backends import backend_of
from tests.support.executor import Bench, FakeGate, chunk_run

ANSWERS = {"done": Done("found"), "nothing": NotDone(), "resolved": Done("found")}


def make_app() -> App:
    app = App()

    def check(request: Request[Any]) -> Any:
        return ANSWERS.get(request.id, Unknown())

    @app.handler("charge", effect="external", check=check)
    def charge(payload: Any) -> Any:
        raise ValueError("half way")

    return app


@pytest.mark.parametrize(
    "verdict, not_done",
    [(None, ("failed", "worker_died")), ("timeout", ("failed", "timeout"))],
)
def test_the_check_is_asked_though_the_claim_ran_out_before(
    stack: Stack, schema: str, verdict: str | None, not_done: tuple[str, str]
) -> None:
    """With many calls open in the worker that died, the last of them waits long for its turn."""
    bench = Bench(make_app(), stack.database, schema)
    code = verdict or "worker_died"
    ends = {
        "done": ("done", "ok"), "nothing": not_done, "unknown": ("in_doubt", code),
        "resolved": ("done", "resolved"), "again": ("in_doubt", "worker_died"),
    }  # fmt: skip
    for name, end in ends.items():
        call = bench.record(name, "charge", {})
        bench.run(call)
        bench.query(
            f"UPDATE {schema}.requests SET state = 'running', token = 't', finished_at = NULL,"
            f" lease_until = now() WHERE id = '{name}'"
        )
        with psycopg.connect(bench.url, autocommit=True) as connection:
            (swept,) = sweep_expired_claims(connection, schema=schema)
        assert (swept.id, swept.state, swept.code) == (name, "in_doubt", "worker_died")
        if name == "resolved":
            bench.query(
                f"UPDATE {schema}.requests SET state = 'done', code = 'resolved'"
                f" WHERE id = '{name}'"
            )
        # Where it may be the check that killed the second worker, it is not asked.
        deaths = 2 if name == "again" else 1
        report = bench.run(call, suspect=Suspect(verdict, (), ("t",), deaths))
        assert bench.rows()[name] == end, name
        assert sum(report.counts.values()) == 1
    crashes = dict(bench.query(f"SELECT id, crashes FROM {schema}.requests"))
    once = 0 if verdict else 1  # the sweep takes it for a crash, which a time-out is not
    assert crashes == {**dict.fromkeys(ends, once), "resolved": 1, "again": 1}
    bench.executor.close()


def test_what_a_check_said_is_written_when_its_time_is_no_longer_counted(
    stack: Stack, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits there for the database would have its worker killed at that deadline."""
    bench = Bench(make_app(), stack.database, schema)
    bench.run(bench.record("done", "charge", {}))
    gate, running = FakeGate(), []
    finish = JournalWriter.finish_claim

    def look(*given: Any) -> int:
        running.append(gate.running)
        return finish(*given)

    monkeypatch.setattr(JournalWriter, "finish_claim", look)
    bench.run_chunk(chunk_run([bench.record("done", "charge", {})], gate=gate))
    assert (running, bench.rows()) == ([None], {"done": ("done", "ok")})
    assert len(gate.shown) > 1
    bench.executor.close()
    bench.app.stop_worker()


def test_a_suspect_that_nobody_can_read_is_kept_where_its_dead_sessions_cannot_be_looked_for(
    stack: Stack, schema: str
) -> None:
    """The statement takes too long: its dead letter is written when the message comes again."""
    bench = Bench(make_app(), stack.database, schema)
    with closing(psycopg.connect(stack.database, autocommit=True)) as dead:
        backend = backend_of(dead)
        bench.query(
            f"CREATE VIEW {bench.schema}.pg_stat_activity AS SELECT a.* FROM"
            " pg_catalog.pg_stat_activity a WHERE CASE WHEN a.pid = pg_backend_pid() THEN true"
            " ELSE pg_sleep(30) IS NOT NULL END"
        )
        bench.executor.close()
        shown = f"{stack.database}?options=-csearch_path%3D{bench.schema},pg_catalog"
        slow = bench.another(shown, statement_timeout=0.2)
        message, suspect = bench.record(None, "charge", {}), Suspect(None, (backend,), ("t",), 1)
        report = slow.begin(chunk_run([message], suspect=suspect))
        slow.close()
        assert report is not None
        assert (report.unclear, report.returned, report.counts) == ([0], [], {})
        assert (report.database_up, bench.letters()) == (True, [])
        bench.run(message, suspect=suspect)
        assert bench.letters() == [("malformed", None)]
    bench.executor.close()
