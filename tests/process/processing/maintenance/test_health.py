from __future__ import annotations

from processing.ipc.frames import CannotServe, DatabaseState, Heartbeat, ProbeDatabase
from stack import Stack
from tests.support.maintenance import StartMaintenance, registration
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


def port_of(stack: Stack, prefix: str) -> int:
    facts = eventually(lambda: registration(stack, prefix))
    port = facts["health_port"]
    assert isinstance(port, int)
    return port


def test_health_endpoints(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through, stale_after=1.5)
    maintenance.ready()
    port = port_of(stack, prefix)
    assert maintenance.get(port, "/readyz")[0] == 503

    maintenance.send(Heartbeat({"joined": True, "assigned": 2, "stopping": False}))
    eventually(lambda: maintenance.get(port, "/readyz") == (200, {"ok": True}))
    assert maintenance.get(port, "/livez")[0] == 200

    proxy.cut()
    maintenance.send(ProbeDatabase())
    maintenance.wait_for(DatabaseState)
    maintenance.send(Heartbeat({"joined": True}))
    status, answer = maintenance.get(port, "/readyz?verbose")
    assert status == 503
    assert [c["name"] for c in answer["checks"] if not c["ok"]] == ["database"]

    # No beat any more: the main process hangs.
    eventually(lambda: maintenance.get(port, "/livez")[0] == 503)


def test_a_taken_health_port_is_fatal(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str
) -> None:
    start(schema=schema).ready()
    port = port_of(stack, prefix)

    assert "another health_port" in " ".join(
        start(schema=schema, health_port=port).wait_for(CannotServe).reason.split()
    )
