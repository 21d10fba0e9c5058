"""At a stop of the gateway nobody goes on waiting, and what was sent is told with its id."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from consumer.gateway.sending import OutboxSender
from feedback.contract.states import State
from tests.support.gateway import GatewayBench

Http = httpx.AsyncClient
KEY = {"Idempotency-Key": "k"}


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_stop_ends_all_waits() -> None:
    bench = GatewayBench()
    bench.say("k", State.RUNNING)

    async def scenario(http: Http) -> None:
        getting = asyncio.create_task(http.get("/requests/k?wait=60"))
        prefer = {"Prefer": "wait=60"}
        posting = asyncio.create_task(http.post("/requests/a.b", json=1, headers=prefer))
        await until(lambda: bench.parts.slots.taken == 2 and bench.producer.sent)
        bench.parts.statuses.stop()
        assert (await getting).json()["state"] == "running"
        posted = await posting
        (sent,) = bench.producer.envelopes()
        assert (posted.status_code, posted.json()["state"]) == (202, "accepted")
        assert posted.json()["id"] == sent.id
        assert posted.headers["Location"] == f"/requests/{sent.id}"

    bench.run(scenario)


def test_at_a_stop_what_the_brokers_have_not_confirmed_is_503_with_its_id() -> None:
    bench = GatewayBench(send_timeout=0.1)
    bench.producer.confirming.clear()

    async def scenario(http: Http) -> None:
        prefer = {"Prefer": "wait=60"}
        posting = asyncio.create_task(http.post("/requests/a.b", json=1, headers=prefer))
        await until(lambda: bench.producer.sent)
        bench.parts.statuses.stop()
        posted = await posting
        (sent,) = bench.producer.envelopes()
        assert (posted.status_code, posted.json()["id"]) == (503, sent.id)

    bench.run(scenario)


def test_at_a_stop_what_was_not_sent_yet_is_503_though_its_id_was_sent_before() -> None:
    bench = GatewayBench()
    bench.parts.client._queue_timeout = 40

    async def scenario(http: Http) -> None:
        assert (await http.post("/requests/a.b", json=1, headers=KEY)).status_code == 202
        bench.say("k", State.FAILED)
        bench.producer.room = 0
        prefer = {"Prefer": "wait=60"} | KEY
        posting = asyncio.create_task(http.post("/requests/a.b", json=1, headers=prefer))
        await until(lambda: bench.producer.refused)
        bench.parts.statuses.stop()
        posted = await posting
        assert (posted.status_code, posted.json()["id"]) == (503, "k")
        assert "stopping" in posted.json()["detail"]
        assert len(bench.producer.sent) == 1

    bench.run(scenario)


def test_at_a_stop_what_is_in_the_outbox_is_202() -> None:
    bench = GatewayBench()
    written = asyncio.Event()

    class Threads:
        async def run(self, work: Any, timeout: float, *, again: bool) -> list[str]:
            written.set()
            return []

    threads: Any = Threads()
    bench.parts.sender = OutboxSender(threads, "s", bench.parts.statuses)

    async def scenario(http: Http) -> None:
        prefer = {"Prefer": "wait=60"}
        posting = asyncio.create_task(http.post("/requests/a.b", json=1, headers=prefer))
        await written.wait()
        bench.parts.statuses.stop()
        posted = await posting
        assert (posted.status_code, posted.json()["code"]) == (202, "unsent")

    bench.run(scenario)
