"""At a stop of the gateway nobody goes on waiting, and what was sent is told with its id."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from typing import Any

import httpx
import pytest

from consumer.gateway.running_ends import RunningEnds
from consumer.gateway.sending import OutboxSender
from consumer.gateway.server import GatewayServer, configured
from feedback.contract.states import State
from feedback.errors import ClientClosed
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


@pytest.mark.parametrize("grace", [0.5, 1, 3, 30])
def test_calls_have_nine_tenths_of_any_grace(grace: float) -> None:
    bench = GatewayBench(grace=grace)
    calls = configured(bench.settings, bench.app).timeout_graceful_shutdown
    assert calls == pytest.approx(0.9 * grace)


@pytest.mark.parametrize("path", ["/requests/a.b", "/requests/k/cancel"])
def test_what_is_given_up_at_the_end_of_the_grace_is_503_with_its_id(path: str) -> None:
    bench = GatewayBench(grace=1)
    bench.producer.confirming.clear()
    begun = asyncio.Event()

    async def hangs(*_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    bench.operator.cancel = hangs  # type: ignore[method-assign]

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            server = GatewayServer(configured(bench.settings, bench.app), bench.parts)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            async with Http(base_url=f"http://{host}:{port}", timeout=20) as http:
                posting = asyncio.create_task(http.post(path, json={}))
                await until(lambda: bench.producer.sent or begun.is_set())
                before = time.monotonic()
                server.handle_exit(15, None)
                closes_by = bench.parts.closes_by
                assert closes_by is not None
                assert before + 1 <= closes_by <= time.monotonic() + 1
                answer = await posting
            bench.producer.confirming.set()
            await serving
        sent = "k" if begun.is_set() else bench.producer.envelopes()[0].id
        assert (answer.status_code, answer.json()["id"]) == (503, sent)
        assert answer.headers["content-type"] == "application/problem+json"
        assert bench.answers[-1][2] == 503

    asyncio.run(play())


def test_whoever_waits_for_the_end_of_what_runs_is_let_go_at_a_stop() -> None:
    started, go_on, stops = threading.Event(), threading.Event(), asyncio.Event()

    def end(_: Any) -> None:
        started.set()
        go_on.wait(20)

    async def withdraw(_: Any) -> list[Any]:
        return []

    async def stopped() -> None:
        await stops.wait()

    async def play() -> None:
        ending = asyncio.create_task(RunningEnds(stopped).end(end, withdraw, 60))
        await asyncio.to_thread(started.wait, 20)
        stops.set()
        with pytest.raises(ClientClosed, match="stopping"):
            await ending
        go_on.set()

    asyncio.run(play())


def test_what_is_left_of_the_grace_is_all_there_is_to_close_what_is_open() -> None:
    bench = GatewayBench()
    bench.producer.confirming.clear()
    within: list[float] = []
    close = bench.parts.client.close

    async def noted(timeout: float) -> None:
        within.append(timeout)
        await close(timeout=0)

    bench.parts.client.close = noted  # type: ignore[method-assign]
    bench.parts.closes_by = time.monotonic() - 1

    async def scenario(_: Http) -> None: ...

    bench.run(scenario)
    assert within == [0.0]


@pytest.mark.parametrize("calls", [0, 1])
def test_a_second_signal_ends_it_soon_and_in_order(
    calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = GatewayBench(grace=600)
    begun, closed = asyncio.Event(), []
    close = bench.parts.client.close

    async def hangs(*_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    async def noted(timeout: float) -> None:
        closed.append(timeout)
        await close(timeout)

    bench.operator.cancel = hangs  # type: ignore[method-assign]
    bench.parts.client.close = noted  # type: ignore[method-assign]

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            server = GatewayServer(configured(bench.settings, bench.app), bench.parts)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await until(lambda: server.started)
            async with asyncio.timeout(30), Http(base_url=f"http://{host}:{port}") as http:
                posting = [
                    asyncio.create_task(http.post("/requests/k/cancel")) for _ in range(calls)
                ]
                if calls:
                    await begun.wait()
                server.handle_exit(signal.SIGTERM, None)
                server.handle_exit(signal.SIGTERM, None)
                for answer in await asyncio.gather(*posting):
                    assert (answer.status_code, answer.json()["id"]) == (503, "k")
                await serving

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert closed == [0.0]
    assert [record.getMessage() for record in caplog.records] == []
