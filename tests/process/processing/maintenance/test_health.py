from __future__ import annotations

from stack import Stack
from tests.support.clerk import StartClerk, registration
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


def port_of(stack: Stack, prefix: str) -> int:
    facts = eventually(lambda: registration(stack, prefix))
    port = facts["health_port"]
    assert isinstance(port, int)
    return port


def test_health_endpoints(
    start: StartClerk, stack: Stack, schema: str, prefix: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through, stale_after=1.5)
    clerk.ready()
    port = port_of(stack, prefix)
    assert clerk.get(port, "/readyz")[0] == 503

    clerk.send("beat", {"joined": True, "assigned": 2, "stopping": False})
    eventually(lambda: clerk.get(port, "/readyz") == (200, {"ok": True}))
    assert clerk.get(port, "/livez")[0] == 200

    proxy.cut()
    clerk.send("probe")
    clerk.wait_for("database")
    clerk.send("beat", {"joined": True})
    status, answer = clerk.get(port, "/readyz?verbose")
    assert status == 503
    assert [c["name"] for c in answer["checks"] if not c["ok"]] == ["database"]

    # No beat any more: the main process hangs.
    eventually(lambda: clerk.get(port, "/livez")[0] == 503)


def test_a_taken_health_port_is_fatal(
    start: StartClerk, stack: Stack, schema: str, prefix: str
) -> None:
    start(schema=schema).ready()
    port = port_of(stack, prefix)

    assert "another health_port" in " ".join(
        start(schema=schema, health_port=port).wait_for("fatal")[1].split()
    )
