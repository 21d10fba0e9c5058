"""An outbox, its relay and the whole service, through lost replies, a Redis that is flushed, and
clocks that are apart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import redis

from feedback import outbox
from feedback.client.send_clock import SendClock
from feedback.outbox import rows
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import AnswerPolicy, Ended, Relay, Route, turns
from tests.support.kafka_frames import is_produce
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.outbox import Outbox
from tests.support.proxy import Proxy
from tests.support.service import WAIT, Bench
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

APART = timedelta(minutes=10)


class RelayedOrders:
    """An outbox of requests of `bench`; its relay reaches broker and Redis through proxies.

    The sender `recorded` has a results topic.
    """

    def __init__(self, bench: Bench, schema: str, results: str) -> None:
        self.bench = bench
        self.broker = LoneBrokerProxy.of(bench.stack.kafka)
        self.redis = Proxy.of(bench.stack.redis)
        self.prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
        self.told: list[Ended] = []
        with psycopg.connect(bench.stack.database) as connection:
            migrate(connection, schema, ["recorded"])
        self.outbox = Outbox(bench.stack.database, schema)
        route = Route(
            bench.topic,
            {"bootstrap.servers": f"127.0.0.1:{self.broker.port}"},
            self.redis.before(bench.stack.redis),
            self.prefix,
        )
        self.relay = Relay(
            self.outbox.url,
            {"default": route, "recorded": route._replace(results_topic=results)},
            schema=schema,
            policy=AnswerPolicy(resend_after=2.0, longest=10.0, max_sends=1000),
            settled=self.told.append,
            inbox=True,
        )

    def add(self, name: str, kind: str = "effect", **options: Any) -> list[str]:
        """Ten more, of one key."""
        payload = {"table": self.bench.table}
        with psycopg.connect(self.outbox.url) as connection:
            many: list[Any] = [
                (kind, payload, {"request_id": f"{name}-{n}", "key": name, **options})
                for n in range(10)
            ]
            return outbox.add_many(connection, many)

    def rows(self, some: list[str]) -> list[Any]:
        found = self.outbox.rows("SELECT id, state, sends FROM :schema.all_requests")
        return [row for row in found if row["id"] in some]

    def states(self, some: list[str]) -> set[str]:
        return {row["state"] for row in self.rows(some)}

    def end(self, some: list[str], state: str = "done") -> None:
        """Waits until all have."""
        eventually(lambda: self.states(some) == {state}, WAIT, lambda: str(self.rows(some)))

    def sends(self, some: list[str]) -> dict[str, int]:
        return {row["id"]: row["sends"] for row in self.rows(some)}

    def close(self) -> None:
        self.relay.close()
        self.outbox.connection.close()
        for proxy in (self.broker, self.redis):
            proxy.cut()


@pytest.fixture
def orders(
    bench: Bench,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RelayedOrders]:
    """The producer's clock is fast by minutes; the relay has none but its database's."""
    fast = SendClock(lambda: time.time_ns() + int(APART.total_seconds()) * 10**9)
    monkeypatch.setattr(rows, "_CLOCK", fast)
    schema = f"{bench.schema}_outbox"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    results = topic()
    bench.start(ONCEPOOL_KAFKA_RESULTS_TOPIC=results)
    made = RelayedOrders(bench, schema, results)
    made.relay.start()
    yield made
    made.close()
    with psycopg.connect(bench.stack.database) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def test_each_order_is_done_once_whatever_is_lost_and_whatever_the_clocks_say(
    orders: RelayedOrders, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard = send_unheard(orders, monkeypatch)

    flushed, recorded = answer_nobody_reads(orders)

    # A fast producer takes its first run for one of before, and asks for one more.
    failed = orders.add("failed", "raises")
    orders.end(failed, "failed")
    assert set(orders.sends(failed).values()) == {2}

    everything = unheard + flushed + recorded
    bench.check_books(set(everything))
    told = Counter(ended.id for ended in orders.told)
    assert told == Counter(everything + failed)
    inbox = Counter(row["id"] for row in orders.outbox.rows("SELECT id FROM :schema.inbox"))
    assert inbox == told


def send_unheard(orders: RelayedOrders, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The broker gets some, its reply is cut off, and the relay does not hear of it."""
    bench, gate = orders.bench, orders.broker
    orders.end(orders.add("warm"))
    wish = gate.wish(is_produce, cut=True)
    with monkeypatch.context() as patience:
        patience.setattr(turns, "SEND_TIMEOUT", 2.0)
        unheard = orders.add("unheard")
        assert wish.fulfilled.wait(WAIT)
        eventually(lambda: orders.relay.states()[0].other, WAIT)
    eventually(lambda: bench.done() > 10, WAIT)  # they run, whoever knows of it
    assert orders.states(unheard) == {"unsent"}
    gate.mend()
    orders.end(unheard)
    copies = Counter(ids(bench.stack, bench.topic))
    more = [copies[id_] - n for id_, n in orders.sends(unheard).items()]
    assert more[0] == 1
    assert set(more) <= {0, 1}  # those of another set of messages may not have gone
    return [f"warm-{n}" for n in range(10)] + unheard


def answer_nobody_reads(orders: RelayedOrders) -> tuple[list[str], list[str]]:
    """Redis is away from the relay, and flushed before it is back."""
    bench, gate = orders.bench, orders.redis
    gate.cut()
    flushed = orders.add("flushed")
    recorded = orders.add("recorded", sender="recorded")
    orders.end(recorded)  # by the results topic
    eventually(lambda: all(s and s.state == "done" for s in bench.statuses(flushed)), WAIT)
    assert orders.states(flushed) == {"sent"}
    assert set(orders.sends(flushed).values()) == {1}
    with redis.Redis.from_url(bench.stack.redis) as client:
        keys = [f"{orders.prefix}:status:{id_}" for id_ in flushed]
        assert client.delete(*keys) == len(keys)
    gate.mend()
    orders.end(flushed)  # sent again, and answered from the journal
    assert min(orders.sends(flushed).values()) > 1
    return flushed, recorded
