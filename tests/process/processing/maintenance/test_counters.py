from __future__ import annotations

from processing.ipc.frames import Counts, DatabaseState, ProbeDatabase
from stack import Stack
from tests.support.maintenance import StartMaintenance, counters
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


def test_counters_are_exact(start: StartMaintenance, stack: Stack, schema: str) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    for _ in range(50):
        maintenance.send(Counts({("a", "done", "ok"): 3, ("b", "failed", "timeout"): 1}))
    assert maintenance.stop() == 0

    assert counters(stack, schema) == {("a", "done", "ok"): 150, ("b", "failed", "timeout"): 50}


def test_counters_outlive_an_outage(
    start: StartMaintenance, stack: Stack, schema: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through)
    maintenance.ready()
    proxy.cut()
    maintenance.send(Counts({("a", "done", "ok"): 3}))
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 1).up

    proxy.mend()
    maintenance.send(Counts({("a", "done", "ok"): 4}))

    eventually(lambda: counters(stack, schema) == {("a", "done", "ok"): 7})
