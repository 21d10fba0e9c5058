"""While the brokers are known to be away no request waits for them, and none is handed on."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from consumer.admin.kafka_admin import KafkaUnreachable, TopicMissing
from consumer.gateway.brokers import KNOWN_FOR, SOON, Brokers
from tests.support.gateway import GatewayBench

Http = httpx.AsyncClient


@pytest.mark.parametrize("prefer", [{}, {"Prefer": "wait=30"}])
def test_what_comes_while_brokers_are_known_to_be_away_is_refused_at_once(
    prefer: dict[str, str],
) -> None:
    bench = GatewayBench(send_timeout=40)  # longer than the bench lets anybody wait
    bench.away = {"kafka"}
    bench.producer.confirming.clear()

    async def scenario(http: Http) -> None:
        assert (await http.get("/readyz")).status_code == 503
        for number in range(3):
            name = f"k{number}"
            posted = await http.post(
                "/requests/a.b", json=1, headers={"Idempotency-Key": name} | prefer
            )
            assert (posted.status_code, posted.json()["id"]) == (503, name)
            assert "kafka is away" in posted.json()["detail"]
            assert posted.headers["Retry-After"]
        assert bench.producer.sent == []

    bench.run(scenario)


def test_the_first_request_after_a_failed_one_has_them_asked() -> None:
    bench = GatewayBench(send_timeout=0.1)
    bench.producer.error = "timed out"
    bench.away = {"kafka"}

    async def post(http: Http) -> int:
        return (await http.post("/requests/a.b", json=1)).status_code

    async def scenario(http: Http) -> None:
        assert (await post(http), len(bench.producer.sent), bench.probed) == (503, 1, 0)
        assert (await post(http), len(bench.producer.sent), bench.probed) == (503, 1, 1)
        bench.brokers._known_until = 0.0  # that is no news any more
        bench.away.clear()
        bench.producer.error = None
        assert (await post(http), len(bench.producer.sent), bench.probed) == (202, 2, 2)
        assert (await post(http), len(bench.producer.sent), bench.probed) == (202, 3, 2)

    bench.run(scenario)


def test_one_that_is_confirmed_says_that_they_are_back() -> None:
    async def play() -> None:
        async def ask() -> None:
            raise KafkaUnreachable("away")

        brokers = Brokers(ask)
        with pytest.raises(KafkaUnreachable):
            await brokers.ask()
        with pytest.raises(KafkaUnreachable):
            await brokers.refuse_away()
        brokers.confirmed()
        await brokers.refuse_away()

    asyncio.run(play())


def test_a_topic_that_is_missing_keeps_no_request_back() -> None:
    """Brokers may make it for the first one."""

    async def play() -> None:
        async def ask() -> None:
            raise TopicMissing("topic t does not exist")

        brokers = Brokers(ask)
        brokers.unconfirmed("no answer")
        with pytest.raises(TopicMissing):
            await brokers.ask()
        await brokers.refuse_away()

    asyncio.run(play())


def test_nobody_waits_for_a_look_that_takes_long() -> None:
    now = [100.0]

    async def play() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()
        answer.set()
        away = True

        async def ask() -> None:
            asked.set()
            await answer.wait()
            if away:
                raise KafkaUnreachable("no answer")

        brokers = Brokers(ask, lambda: now[0])
        with pytest.raises(KafkaUnreachable):
            await brokers.ask()
        away = False
        asked.clear()
        answer.clear()
        now[0] += KNOWN_FOR
        first = asyncio.create_task(brokers.refuse_away())
        await asked.wait()
        now[0] += SOON
        async with asyncio.timeout(SOON / 2):  # not another SOON: others wait for the look already
            with pytest.raises(KafkaUnreachable, match="no answer; nothing was sent"):
                await brokers.refuse_away()
        with pytest.raises(KafkaUnreachable):
            await first
        answer.set()
        await brokers.ask()
        await brokers.refuse_away()

    asyncio.run(play())
