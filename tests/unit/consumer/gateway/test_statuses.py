"""Statuses of which Redis and the journal say different things, or the journal nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta

import httpx
import pytest

from consumer.gateway.statuses import READ_WITHIN
from feedback.contract.states import State
from feedback.status.status import Status
from tests.support.gateway import AT, GatewayBench
from tests.support.loop_clock import stopped_clock


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


@pytest.mark.parametrize(
    "stored, later, shown",
    [
        ((State.FAILED, 1), 1, "in_doubt"),
        ((State.FAILED, 2), 1, "in_doubt"),
        ((State.FAILED, 1), -1, "failed"),
        ((State.RUNNING, 2), 1, "in_doubt"),
        ((State.RUNNING, 3), 1, "running"),
        ((State.WAITING, 1), 1, "in_doubt"),
        ((State.WAITING, 2), 1, "waiting"),
        ((State.DONE, 1), 1, "done"),
    ],
)
def test_an_older_row_does_not_hide_a_doubt_that_no_row_says(
    stored: tuple[State, int], later: int, shown: str
) -> None:
    """Its COMMIT by the handler landed, and its end could not be written. `run` 2 was in doubt."""
    bench = GatewayBench()
    state, run = stored
    bench.journal.put("a", state, run=run)
    at = AT + timedelta(seconds=later)
    bench.say("a", State.IN_DOUBT, run=2, at=at, journaled=False)
    bench.journal.put("row", State.FAILED, run=3)
    bench.say("row", State.IN_DOUBT, run=4, at=AT + timedelta(seconds=1))

    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await http.get("/requests/a")).json()["state"] == shown
        assert (await http.get("/requests/row")).json()["state"] == "failed", "a row said so"

    bench.run(scenario)


@pytest.mark.parametrize("known", [True, False])
def test_reads_that_have_no_turn_are_made_of_the_journal_alone(*, known: bool) -> None:
    bench = GatewayBench()
    if known:
        bench.journal.put("a", State.DONE)
    begun, go = threading.Event(), threading.Event()

    def slow(ids: Sequence[str]) -> list[Status | None]:
        begun.set()
        go.wait(50)
        return [None for _ in ids]

    bench.store.read = slow  # type: ignore[method-assign]

    async def scenario(http: httpx.AsyncClient) -> None:
        later = stopped_clock()
        asking = asyncio.create_task(http.get("/requests/a"))
        assert await asyncio.to_thread(begun.wait, 50)
        later(READ_WITHIN)
        answer = await asking
        go.set()
        assert answer.status_code == (200 if known else 503)
        assert known or "others ask for very many" in answer.json()["detail"]

    bench.run(scenario)
