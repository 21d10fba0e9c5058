"""An outbox, its relay and the whole service, through lost replies, a Redis that is flushed, a main
process that is killed, and clocks that are apart."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from feedback import Client, outbox
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

FAST = timedelta(minutes=10)
CLASSIC = {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"}
"""A killed member is noticed soon."""
OTHER_ENDS = {
    "rejects": ("rejected", "no_funds"),
    "charges": ("in_doubt", "handler_error"),  # a call outside that raises
    "dies": ("dead", "worker_died"),
    "taken": ("undeliverable", "conflict"),
}
"""Id -> state and code."""


class RelayedOrders:
    """An outbox of requests of `bench`; its relay reaches broker and Redis through proxies.

    The sender `recorded` has a results topic. Redis has a database that no other test uses now.
    """

    def __init__(self, bench: Bench, schema: str, results: str) -> None:
        self.bench = bench
        self.broker = LoneBrokerProxy.of(bench.stack.kafka)
        self.redis = Proxy.of(bench.stack.redis)
        self.statuses = bench.environment["ONCEPOOL_REDIS_URL"]
        self.prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
        self.told: list[Ended] = []
        with psycopg.connect(bench.stack.database) as connection:
            migrate(connection, schema, ["recorded"])
        self.outbox = Outbox(bench.stack.database, schema)
        route = Route(
            bench.topic,
            {"bootstrap.servers": f"127.0.0.1:{self.broker.port}"},
            self.redis.before(self.statuses),
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

    def add(self, name: str, kind: str = "effect", more: Any = None, **options: Any) -> list[str]:
        """Ten more, of one key; `more` is in their payloads, too."""
        payload = {"table": self.bench.table, **(more or {})}
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

    def told_once(self) -> Counter[str]:
        """How often each end was told by the inbox, which is as often as by the callback."""
        told = Counter(ended.id for ended in self.told)
        rows = self.outbox.rows("SELECT id FROM :schema.inbox")
        assert Counter(row["id"] for row in rows) == told
        return told

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
def apart() -> timedelta:
    """By how much the producer's clock is fast."""
    return timedelta(0)


@pytest.fixture
def protocol() -> dict[str, str]:
    """Settings of the consumers' group."""
    return {}


@pytest.fixture
def orders(
    bench: Bench,
    topic: Callable[..., str],
    apart: timedelta,
    protocol: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RelayedOrders]:
    """The relay has no clock but its database's."""
    clock = SendClock(lambda: time.time_ns() + int(apart.total_seconds()) * 10**9)
    monkeypatch.setattr(rows, "_CLOCK", clock)
    schema = f"{bench.schema}_outbox"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    results = topic()
    use_own_redis(bench)
    bench.environment |= {"ONCEPOOL_KAFKA_RESULTS_TOPIC": results, **protocol}
    bench.start()
    made = RelayedOrders(bench, schema, results)
    made.relay.start()
    yield made
    made.close()
    with psycopg.connect(bench.stack.database) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def use_own_redis(bench: Bench) -> None:
    """Another database of the server, which may be flushed: each worker of a run has one."""
    number = 8 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    url = urlsplit(bench.stack.redis)._replace(path=f"/{number}").geturl()
    bench.environment["ONCEPOOL_REDIS_URL"] = url
    bench.client.close()
    prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
    bench.client = Client(kafka=bench.stack.kafka, redis=url, topic=bench.topic, prefix=prefix)


@pytest.mark.parametrize(
    "apart",
    [pytest.param(FAST, id="fast"), pytest.param(-FAST, id="slow", marks=pytest.mark.long)],
)
def test_each_order_is_done_once_whatever_is_lost_and_whatever_the_clocks_say(
    orders: RelayedOrders, bench: Bench, apart: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard = send_unheard(orders, monkeypatch)

    flushed, recorded = answer_nobody_reads(orders)

    # A fast producer takes its first run for one of before, and asks for one more.
    failed = orders.add("failed", "raises")
    orders.end(failed, "failed")
    assert set(orders.sends(failed).values()) == {2 if apart == FAST else 1}

    others = end_otherwise(orders)

    everything = unheard + flushed + recorded
    bench.check_books({*everything, "taken"})
    assert orders.told_once() == Counter(everything + failed + others)


@pytest.mark.long  # the chaos run and the demo show it, too
@pytest.mark.parametrize("protocol", [CLASSIC], ids=["classic"])
def test_what_a_killed_main_process_had_in_hand_is_answered_once(
    orders: RelayedOrders, bench: Bench, protocol: dict[str, str], tmp_path: Path
) -> None:
    """Between the relay's sends and the answers."""
    go = tmp_path / "go"
    held = orders.add("held", "paced", {"seconds": 60.0, "until": str(go)})
    eventually(lambda: orders.states(held) == {"sent"} and bench.waiting() == 0, WAIT)
    bench.instances[0].kill()
    assert orders.told == []
    go.touch()
    bench.start()
    orders.end(held)
    bench.check_books(set(held))
    assert orders.told_once() == Counter(held)


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
    with redis.Redis.from_url(orders.statuses) as client:
        keys = [f"{orders.prefix}:status:{id_}" for id_ in flushed]
        assert client.exists(*keys) == len(keys)
        client.flushdb()
    gate.mend()
    orders.end(flushed)  # sent again, and answered from the journal
    assert min(orders.sends(flushed).values()) > 1
    return flushed, recorded


def end_otherwise(orders: RelayedOrders) -> list[str]:
    """Ends that are no success, and one of another request's."""
    bench, table = orders.bench, {"table": orders.bench.table}
    assert bench.outcome("effect", table, request_id="taken").state == "done"
    payloads = {"taken": {**table, "n": 2}}
    with psycopg.connect(orders.outbox.url) as connection:
        for name in OTHER_ENDS:
            kind = "effect" if name == "taken" else name
            outbox.add(connection, kind, payloads.get(name, {}), request_id=name)

    def found() -> dict[str, tuple[str, str]]:
        rows = orders.outbox.rows("SELECT id, state, code FROM :schema.all_requests")
        return {row["id"]: (row["state"], row["code"]) for row in rows if row["id"] in OTHER_ENDS}

    eventually(lambda: found() == OTHER_ENDS, WAIT, lambda: str(found()))
    return list(OTHER_ENDS)
