"""Result records to a topic that takes less than a set of them, by way of slow brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson
import psycopg
import pytest

from feedback.journal.result_outbox import ResultRecord, add_results
from processing.logs import get_logger
from processing.maintenance.result_relay import result_relay
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.topic_reader import messages
from tests.support.waiting import eventually

LIMIT = 100_000


@pytest.fixture
def slow(stack: Stack) -> Iterator[LoneBrokerProxy]:
    with LoneBrokerProxy.of(stack.kafka) as proxy:
        proxy.delay = 0.1
        yield proxy


def test_all_arrive_as_they_are(
    stack: Stack, schema: str, topic: Callable[..., str], slow: LoneBrokerProxy
) -> None:
    """One of them is too large for the topic, and one comes after that under its key."""
    name = topic(3, **{"max.message.bytes": str(LIMIT)})
    sizes = {f"r-{n}": 5_000 for n in range(500)} | {"r-7": 2 * LIMIT}
    records = [
        ResultRecord(id_, "t", "failed", "code", orjson.dumps("x" * size))
        for id_, size in sizes.items()
    ]
    records.append(ResultRecord("r-7", "t", "done", "ok"))
    settings = MaintenanceSettings(
        instance=schema, database_url=stack.database, schema=schema, redis_url=stack.redis,
        redis_prefix="none", log={}, results_topic=name,
        results_kafka={"bootstrap.servers": f"127.0.0.1:{slow.port}"},
    )  # fmt: skip
    with psycopg.connect(stack.database, autocommit=True) as database:
        add_results(database.cursor(), schema, records)
        relay = result_relay(settings, get_logger("oncepool.maintenance"))
        relay.start()
        try:
            count = f"SELECT count(*) FROM {schema}.results"
            eventually(lambda: database.execute(count).fetchone() == (0,))
        finally:
            relay.stop()
            relay.join(60)
    last = {m.key().decode(): orjson.loads(m.value()) for m in messages(stack, name, 3)}
    assert last.keys() == sizes.keys()
    assert last.pop("r-7")["state"] == "done"
    assert all(len(said["result"]) == 5_000 for said in last.values())
