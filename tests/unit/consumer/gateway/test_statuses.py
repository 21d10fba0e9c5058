"""Statuses of which Redis and the journal say different things, or the journal nothing."""

from __future__ import annotations

import httpx

from feedback.contract.states import State
from tests.support.gateway import GatewayBench


def test_a_wait_for_what_redis_alone_has_settled_looks_now_and_then() -> None:
    """It was retried, and Redis missed that."""
    bench = GatewayBench()
    bench.journal.put("a", State.WAITING, run=2)
    bench.say("a", State.DEAD, code="error")

    async def scenario(http: httpx.AsyncClient) -> None:
        waiting = await http.get("/requests/a", params={"wait": 1})
        assert waiting.json()["state"] == "waiting"

    bench.run(scenario)
    assert len(bench.journal.asked) < 9


def test_a_status_that_no_row_stands_behind_says_so() -> None:
    """Its number is not the journal's: the next status may have a lower one."""
    bench = GatewayBench()

    async def scenario(http: httpx.AsyncClient) -> None:
        bench.say("without", State.FAILED, code="too_late", journaled=False)
        bench.say("with", State.FAILED, code="too_late")
        assert (await http.get("/requests/without")).json()["journaled"] is False
        assert "journaled" not in (await http.get("/requests/with")).json()

    bench.run(scenario)
