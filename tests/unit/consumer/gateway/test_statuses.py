"""Waits for statuses of which Redis and the journal say different things."""

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
