"""A relay with nothing to send says which of its services are away all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from feedback.outbox.migrations import migrate
from stack import Stack
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.metrics import shown
from tests.support.proxy import Proxy
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually

ANSWER = "[+] default: brokers: answers", "[+] default answers: read: answers"
ANSWER_TOO = "[+] default results: read: answers"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Proxy.cut, id="refuses"),
        pytest.param(Proxy.hang, id="hangs", marks=pytest.mark.long),
    ],
)
def test_an_idle_relay_tells_of_brokers_and_redis_that_are_away_and_of_their_return(
    stack: Stack,
    empty_schema: str,
    topic: Callable[..., str],
    tmp_path: Path,
    fault: Callable[[Proxy], object],
) -> None:
    """A results reader hears of brokers that hang only after minutes, so of those that refuse."""
    with psycopg.connect(stack.database) as connection:
        migrate(connection, empty_schema, [])

    def up(service: str) -> float:
        return shown(one.port, "oncepool_relay_up", service=service)

    def told(*lines: str) -> Callable[[], bool]:
        return lambda: all(line in one.ready_text for line in lines)

    with LoneBrokerProxy.of(stack.kafka) as broker, Proxy.of(stack.redis) as redis:
        environment = {
            "ONCEPOOL_OUTBOX_DATABASE_URL": stack.database,
            "ONCEPOOL_OUTBOX_SCHEMA": empty_schema,
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{broker.port}",
            "ONCEPOOL_KAFKA_TOPIC": topic(),
            "ONCEPOOL_REDIS_URL": redis.before(stack.redis),
        }
        reads = fault is Proxy.cut
        if reads:
            environment["ONCEPOOL_KAFKA_RESULTS_TOPIC"] = topic()
        with RelayProcess(environment, tmp_path / "log") as one:
            services = ("brokers", "statuses", *(["results"] if reads else []))
            answer = (*ANSWER, *([ANSWER_TOO] if reads else []))
            eventually(told(*answer), 60, lambda: one.ready_text + one.log)
            one.is_ready()
            assert [up(service) for service in ("outbox", *services)] == [1] * (1 + len(services))

            fault(broker)
            fault(redis)
            away = ["[-] default: brokers: no broker answers", "[!] default answers: read: "]
            if reads:
                away.append("[!] default results: read: no broker answers")
            eventually(told(*away), 60, lambda: one.ready_text + one.log)
            eventually(lambda: not any(map(up, services)), 60, lambda: one.ready_text)
            assert one.get("/readyz")[0] == 503
            assert one.get("/livez")[0] == 200
            assert up("outbox") == 1

            broker.mend()
            redis.mend()
            eventually(told(*answer), 90, lambda: one.ready_text + one.log)
            one.is_ready()
            assert one.stop() == 0
            assert one.log.count("the brokers are away") == 1
