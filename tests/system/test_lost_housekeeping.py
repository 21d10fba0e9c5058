"""An instance whose maintenance process alone has lost its session, and gets no other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from feedback.journal.migrations import migrate
from processing.ipc.frames import DueRows, WantRows
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.maintenance import LOG, MaintenanceProcess
from tests.support.own_database import OwnDatabase
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

LEASE = 15.0
"""Of calls outside; of rows it is a minute."""


@pytest.fixture
def bench(
    stack: Stack, own_database: OwnDatabase, topic: Callable[..., str], prefix: str, group: str,
    tmp_path: Path,
) -> Iterator[Bench]:  # fmt: skip
    migrate(own_database.url, "journal")
    made = Bench(stack, topic(), "journal", prefix, group, tmp_path, database=own_database.url)
    yield made
    made.close()


@pytest.fixture
def other(bench: Bench, stack: Stack, prefix: str) -> Iterator[MaintenanceProcess]:
    """The maintenance process of another instance, which sweeps, and claims what is due."""
    settings = MaintenanceSettings(
        instance="other", database_url=bench.database, schema=bench.schema, redis_url=stack.redis,
        redis_prefix=prefix, log=LOG, health_port=0, sweep_interval=0.2, stale_after=600.0,
        unknown_left=0.0,
    )  # fmt: skip
    made = MaintenanceProcess(settings)
    assert made.ready().ok
    yield made
    made.close()


@pytest.mark.long
def test_workers_renew_the_leases_of_what_runs(
    bench: Bench, own_database: OwnDatabase, other: MaintenanceProcess, tmp_path: Path
) -> None:
    """Both are busy; one makes a call outside, so nobody uses its session meanwhile."""
    charged, end = tmp_path / "charged", tmp_path / "end"
    instance = bench.start(ONCEPOOL_WORKERS="2", ONCEPOOL_LEASE=str(LEASE))
    payload = {"table": bench.table, "seconds": 55, "until": str(end)}
    row = bench.client.submit("paced", payload, delay=1)
    runs = f"SELECT 1 FROM {bench.schema}.requests WHERE state = 'waiting' AND token IS NOT NULL"
    eventually(lambda: bench.query(runs), WAIT)
    call = bench.charging(charged, 45, until=str(end))
    eventually(lambda: bench.said()["running"] == 2, WAIT, lambda: str(bench.facts()))
    other.send(WantRows(1, 10, {}, []))
    [(pid,)] = bench.query(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'oncepool maintenance%%'"
        " AND application_name <> 'oncepool maintenance other'"
    )

    own_database.let_in(new=False)
    [(lost,)] = bench.query("SELECT clock_timestamp() FROM pg_terminate_backend(%s)", pid)
    instance.says("database away")
    bench.query(
        f"UPDATE {bench.schema}.requests SET lease_until = now() + interval '35 s',"
        f" due_at = now() + interval '35 s' WHERE id = %s",
        row,
    )
    over = f"SELECT clock_timestamp() > %s + interval '{LEASE + 2} s'"
    eventually(lambda: bench.query(over, lost) == [(True,)], WAIT)
    ahead = f"SELECT due_at > now() + interval '36 s' FROM {bench.schema}.requests WHERE id = %s"
    eventually(lambda: bench.query(ahead, row) == [(True,)], WAIT)
    stands = f"SELECT id, state, crashes, lost_claims FROM {bench.schema}.requests ORDER BY state"
    assert bench.query(stands) == [(call, "running", 0, 0), (row, "waiting", 0, 0)]

    end.touch()
    assert {bench.client.wait(request, WAIT).state for request in (call, row)} == {"done"}
    assert charged.read_text() == "charged\n"
    assert bench.query(f"SELECT count(*) FROM {bench.schema}.attempts") == [(0,)]
    assert other.received(DueRows) == []
    own_database.let_in(new=True)
    assert instance.stop() == 0
