from __future__ import annotations

from stack import Stack
from tests.support.clerk import StartClerk, counters
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


def test_counters_are_exact(start: StartClerk, stack: Stack, schema: str) -> None:
    clerk = start(schema=schema)
    clerk.ready()
    for _ in range(50):
        clerk.send("counts", {("a", "done", "ok"): 3, ("b", "failed", "timeout"): 1})
    assert clerk.stop() == 0

    assert counters(stack, schema) == {("a", "done", "ok"): 150, ("b", "failed", "timeout"): 50}


def test_counters_outlive_an_outage(
    start: StartClerk, stack: Stack, schema: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through)
    clerk.ready()
    proxy.cut()
    clerk.send("counts", {("a", "done", "ok"): 3})
    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is False

    proxy.mend()
    clerk.send("counts", {("a", "done", "ok"): 4})

    eventually(lambda: counters(stack, schema) == {("a", "done", "ok"): 7})
