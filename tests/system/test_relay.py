"""`oncepool relay` as processes, killed between any two of their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from feedback import outbox
from feedback.metrics.names import ShownBy
from feedback.outbox.migrations import outbox_migrations
from feedback.outbox.relay import AnswerPolicy, Ended, Relay, Route
from stack import Stack
from tests.support.answering import Answering
from tests.support.kafka_frames import is_produce
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.metrics import listed, scrape, shown
from tests.support.outbox import Outbox, make_old
from tests.support.promql import kinds_of
from tests.support.proxy import Proxy, Wish, commit_after
from tests.support.queries_asked import asked_in_vain
from tests.support.relay_process import HELD, RelayProcess
from tests.support.topic_reader import messages, request_id
from tests.support.waiting import eventually

STEPS: dict[str, Callable[[Proxy, Proxy], Wish]] = {
    "claimed": lambda proxy, _: proxy.wish(lambda data: b"AS mine (shard)" in data, HELD),
    "produced": lambda _, broker: broker.wish(is_produce, HELD),
    "sent": lambda proxy, _: proxy.wish(lambda data: b"SET state = 'sent'" in data, HELD),
    "committed": lambda proxy, _: proxy.wish(commit_after(b"SET state = 'sent'"), HELD),
}
"""What the relay has done, and does not know yet, of the outbox or the broker."""


KNOWN = outbox_migrations()[-1].version
BACKLOG = 50_000
MOST_MEMORY = 24.0
"""MiB, more than before: a batch has 1,000 rows, some MiB with all that is made of them."""
COPIES = """
INSERT INTO :schema.requests (id, type, sender, key, payload, headers, fingerprint, shard,
    created_at)
SELECT id || '-' || n, type, sender, convert_to('k' || n %% 100, 'UTF8'), payload, headers,
    fingerprint, n %% 64, created_at
FROM :schema.requests CROSS JOIN generate_series(1, %s) AS n WHERE id = %s
"""


def shows_what_was_sent(one: RelayProcess, rows: int) -> None:
    """Its metrics have them, and all that a relay has to show."""
    eventually(lambda: shown(one.port, "oncepool_outbox_rows", state="sent") == rows, 60)
    assert kinds_of(scrape(one.port)) == listed(ShownBy.RELAY)
    # A sender without a row in a state shows none of its age.
    assert {found.partition("{")[0] for found in asked_in_vain(scrape(one.port))} <= {
        "oncepool_outbox_oldest_seconds"
    }
    assert shown(one.port, "oncepool_outbox_rows", state="unsent") == 0
    assert shown(one.port, "oncepool_relay_up", service="outbox") == 1


def says_that_its_outbox_is_away(one: RelayProcess, proxy: Proxy) -> None:
    """And is ready again once it is back."""
    proxy.cut()
    eventually(lambda: one.get("/readyz")[0] == 503, 60)
    assert "[-] default: outbox: " in one.get("/readyz")[1]
    assert one.get("/livez")[0] == 200
    proxy.mend()
    one.is_ready()


def times_sent(ids: Iterable[str]) -> dict[str, set[int]]:
    """Step -> how often requests of it are in the topic."""
    times: dict[str, set[int]] = {step: set() for step in STEPS}
    for id_, n in Counter(ids).items():
        times[id_.partition("-")[0]].add(n)
    return times


def test_a_killed_relay_has_sent_nothing_out_of_order_and_nothing_more_than_twice(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, proxy, broker = topic(), Proxy.of(outbox_.url), LoneBrokerProxy.of(stack.kafka)
    environment = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": proxy.before(outbox_.url),
        "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema,
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{broker.port}",
        "ONCEPOOL_KAFKA_TOPIC": name,
    }
    wanted: dict[str, list[str]] = {"a": [], "b": []}

    def add(step: str) -> None:
        many: list[Any] = []
        for n in range(20):
            key = "ab"[n % 2]
            wanted[key].append(f"{step}-{n}")
            many.append(("t", {}, {"request_id": f"{step}-{n}", "key": key}))
        with psycopg.connect(outbox_.url) as connection:
            outbox.add_many(connection, many)

    def start() -> RelayProcess:
        return RelayProcess(environment, tmp_path / "log")

    one = start()
    try:
        for step, wish in STEPS.items():
            one.is_ready()
            held = wish(proxy, broker)
            add(step)
            assert held.fulfilled.wait(60), (tmp_path / "log").read_text()
            one.kill()
            for one_side in (proxy, broker):
                one_side.cut_connections()  # what is held is held for nobody
            one = start()
        one.is_ready()
        sent = "SELECT FROM :schema.requests WHERE state <> 'sent'"
        eventually(lambda: not outbox_.rows(sent), 60)
        shows_what_was_sent(one, 20 * len(STEPS))
        says_that_its_outbox_is_away(one, proxy)
        assert one.stop() == 0
    finally:
        one.kill()
        proxy.cut()
        broker.cut()

    found = messages(stack, name)
    times = times_sent(map(request_id, found))
    assert max(times.pop("produced")) == 2  # those of another set of messages had not gone
    assert times == {"claimed": {1}, "sent": {2}, "committed": {1}}
    for key, ids in wanted.items():
        first = dict.fromkeys(request_id(m) for m in found if m.key() == key.encode())
        assert list(first) == ids


@pytest.mark.long
def test_a_backlog_waits_for_brokers_that_are_away_in_the_table_and_not_in_memory(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], tmp_path: Path
) -> None:
    """First nothing answers them, then they refuse. Nothing of it is sent more than once."""
    name = topic()
    most = 0.0

    def fill(rows: int) -> None:
        with psycopg.connect(outbox_.url) as connection:
            id_ = outbox.add(connection, "t", "x" * 500)
            connection.execute(outbox_.sql(COPIES).encode(), [rows - 1, id_])

    def until(condition: Callable[[], object]) -> None:
        def looked() -> object:
            nonlocal most
            most = max(most, one.uss)
            return condition()

        eventually(looked, 120, lambda: f"{one.get('/readyz')} {(tmp_path / 'log').read_text()}")

    def sent() -> bool:
        return not outbox_.rows("SELECT FROM :schema.requests WHERE state <> 'sent' LIMIT 1")

    with LoneBrokerProxy.of(stack.kafka) as broker:
        environment = {
            "ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url,
            "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema,
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{broker.port}",
            "ONCEPOOL_KAFKA_TOPIC": name,
        }
        one = RelayProcess(environment, tmp_path / "log")
        try:
            one.is_ready()
            fill(2_000)  # what a batch takes is taken from here on
            until(sent)
            before, most = most, 0.0
            broker.hang()
            fill(BACKLOG)
            until(lambda: "[-] default: brokers: brokers have not confirmed" in one.ready_text)
            broker.cut()
            until(lambda: "[-] default: brokers: no broker answers" in one.ready_text)
            assert one.get("/readyz")[0] == 503
            assert one.get("/livez")[0] == 200
            assert "[+] default: outbox: answers" in one.ready_text
            broker.mend()
            until(sent)
            one.is_ready()
            assert most - before < MOST_MEMORY
            assert one.stop() == 0
        finally:
            one.kill()
    with closing(Consumer({"bootstrap.servers": stack.kafka, "group.id": name})) as consumer:
        ends = consumer.get_watermark_offsets(TopicPartition(name, 0), 30)
    assert ends == (0, 2_000 + BACKLOG)


@pytest.mark.parametrize("version", [0, 1, KNOWN + 1], ids=["missing", "older", "newer"])
def test_a_relay_whose_outbox_is_of_no_use_says_why_and_ends(
    stack: Stack, empty_schema: str, tmp_path: Path, version: int
) -> None:
    why = f"schema {empty_schema} has no outbox: run `oncepool outbox migrate`, or"
    if version:
        why = f"the outbox in schema {empty_schema} is at version {version}, this Oncepool knows"
        why += f" {KNOWN}: "
        older = f"run `oncepool outbox migrate`, or what it prints with --sql --from {version}"
        why += older if version < KNOWN else "install the newer Oncepool here as well"
    with psycopg.connect(stack.database) as connection:
        if version:
            make_old(connection, empty_schema, version)
        if version > KNOWN:
            later = f"INSERT INTO {empty_schema}.schema_version VALUES (%s, 'later')"
            connection.execute(later.encode(), [version])
    environment = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": stack.database,
        "ONCEPOOL_OUTBOX_SCHEMA": empty_schema,
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": "t",
    }
    one = RelayProcess(environment, tmp_path / "log")
    assert one.process.wait(60) == 1
    place = urlsplit(stack.database)
    where = f"the outbox in database {place.path[1:]} at {place.hostname}:{place.port}"
    (line,) = one.log.splitlines()
    assert line.startswith(f"oncepool: {where} can't be used: {why}")
    assert line.count("oncepool outbox migrate") == (version <= KNOWN), "once"


def test_requests_are_followed_to_their_ends_through_lost_answers_and_a_flushed_store(
    answering: Answering, stack: Stack, outbox_: Outbox, prefix: str
) -> None:
    """One is lost, one finds its consumer's database away, one status is gone before it is read."""
    route = Route(answering.topic, {"bootstrap.servers": stack.kafka}, stack.redis, prefix)
    told: list[Ended] = []
    with psycopg.connect(outbox_.url) as connection:
        many: list[Any] = [(type_, {"n": 1}, {"request_id": type_}) for type_ in ("t", "flushed")]
        outbox.add_many(connection, many)
    # A relay that does not read answers, as one that dies before it has.
    with Relay(outbox_.url, {"default": route._replace(redis=None)}, schema=outbox_.schema):
        eventually(lambda: None not in answering.store.read(["t", "flushed"]), 60)
    with redis.Redis.from_url(stack.redis) as client:
        assert client.delete(f"{prefix}:status:flushed") == 1
    outbox_.run("UPDATE :schema.requests SET next_at = now()")
    with psycopg.connect(outbox_.url) as connection:
        for type_ in ("lost", "outage"):
            outbox.add(connection, type_, {"n": 1}, request_id=type_)
    policy = AnswerPolicy(resend_after=1.0)
    with Relay(
        outbox_.url, {"default": route}, schema=outbox_.schema, policy=policy, settled=told.append
    ):
        eventually(lambda: len(told) == 4, 60)
    found = outbox_.rows("SELECT * FROM :schema.all_requests")
    assert sorted(row["id"] for row in found) == ["flushed", "lost", "outage", "t"]
    assert all(row["result"] == {"n": 1} for row in found)
    sends = {row["id"]: row["sends"] for row in found}
    assert sends["t"] == 1
    assert min(sends["flushed"], sends["lost"], sends["outage"]) > 1
    assert {ended.state for ended in told} == {"done"}
