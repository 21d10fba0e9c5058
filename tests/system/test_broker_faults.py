"""Brokers that stop, hang and break connections while commits are open."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer.config.settings import Settings
from consumer.intake.events import Answered, Place
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from feedback import outbox
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route, turns
from feedback.status.redis_store import RedisStatusStore
from processing.logs import get_logger
from stack import Stack
from stack.kafka import Broker
from tests.support import run
from tests.support.answering import Answering
from tests.support.fake_pool import FakePool
from tests.support.fatal import fail_fatally
from tests.support.heartbeat_proxy import HeartbeatProxy
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.outbox import Outbox
from tests.support.relay_process import RelayProcess
from tests.support.storm import Member, Storm, check
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"kafka_protocol": "classic", "kafka_session_timeout": 6},
    "consumer": {"kafka_protocol": "consumer"},
}
IMPATIENT = {"kafka_properties": {"socket.timeout.ms": 1500}}
LOG = get_logger("test")
SENDERS = ["billing"]
GIVEN_UP = f"ConsumerGroupHeartbeat: {KafkaError(KafkaError.INVALID_REQUEST).str()}"


def make_topic(stack: Stack, partitions: int = 4) -> str:
    topic = f"faults-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result(30)
    return topic


def settings_of(stack: Stack, topic: str, **more: Any) -> Settings:
    return Settings(
        kafka_bootstrap_servers=stack.kafka,
        kafka_topics=[topic],
        kafka_group=f"g-{topic}",
        **more,
    )


def member(kafka: Kafka, *, read_again: bool = True) -> tuple[Loop, FakePool]:
    pool = FakePool()
    flow = FlowControl(1000, 1 << 20)
    return Loop(kafka, pool, flow, "me", LOG, read_again=read_again), pool


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.long), "consumer"])
def storm(request: pytest.FixtureRequest, own_stack: Stack, tmp_path: Path) -> Iterator[Storm]:
    settings = PROTOCOLS[request.param] | IMPATIENT
    topic = make_topic(own_stack)
    storm = Storm(own_stack.kafka, topic, f"g-{topic}", tmp_path, settings)
    yield storm
    storm.end()
    own_stack.heal()


def counts(member: Member) -> dict[str, int]:
    [ended] = [line for line in member.lines() if line["what"] == "ended"]
    return dict(ended["counts"])


def under_load(storm: Storm, members: int = 2) -> list[Member]:
    storm.load(rate=1000)
    started = [storm.start() for _ in range(members)]
    eventually(
        lambda: all(any(x["what"] == "delivered" for x in m.lines()) for m in started),
        90,
        storm.errors,
    )
    return started


def finish(storm: Storm, members: list[Member]) -> None:
    before = storm.delivered()
    eventually(lambda: storm.delivered() > before, 90, storm.errors)
    storm.quiet()
    storm.wait_until_committed()
    for member in members:
        assert storm.stop(member) == 0, storm.errors()
    check(storm.books())


@pytest.mark.parametrize(
    "storm, fault",
    [("classic", "paused"), ("consumer", "killed")],
    indirect=["storm"],
)
@pytest.mark.long
def test_a_broker_that_is_away_while_commits_are_open(
    storm: Storm, own_stack: Stack, fault: str
) -> None:
    members = under_load(storm)
    if fault == "killed":
        own_stack.stop_broker(kill=True)
    else:
        own_stack.pause_broker()
    seen = storm.delivered()
    # The fault took effect: clients lose their connections, and nothing is confirmed.
    eventually(lambda: "broker connection" in storm.errors())
    assert storm.delivered() - seen < 200
    if fault == "killed":
        own_stack.start_broker()
    else:
        own_stack.resume_broker()
    finish(storm, members)


@pytest.mark.long  # the chaos run shows it too
def test_a_process_that_was_frozen_beyond_its_session_runs_nothing_twice(storm: Storm) -> None:
    frozen, other = under_load(storm)
    os.kill(frozen.process.pid, signal.SIGSTOP)

    def taken_over() -> bool:
        lines = [x for x in other.lines() if x["what"] == "delivered"]
        return len({p for line in lines[-20:] for p, _ in line["records"]}) == 4

    try:
        eventually(taken_over, 90, storm.errors)
    finally:
        os.kill(frozen.process.pid, signal.SIGCONT)
    finish(storm, [frozen, other])


def break_connections(port: int) -> int:
    """Breaks every connection of this process to a port, as a network would."""
    broken = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            copy = socket.socket(fileno=os.dup(int(entry.name)))
            with copy:
                if copy.family != socket.AF_UNIX and copy.getpeername()[1] == port:
                    copy.shutdown(socket.SHUT_RDWR)
                    broken += 1
    return broken


def committed(stack: Stack, topic: str) -> int:
    """Where the group of a topic stands, as another client sees it."""
    other = Consumer({"bootstrap.servers": stack.kafka, "group.id": f"g-{topic}"})
    try:
        [found] = other.committed([TopicPartition(topic, 0)], 60)
        return found.offset
    finally:
        other.close()


def turn_until(loop: Loop, condition: Callable[[], object]) -> None:
    eventually(lambda: (loop.turn(), condition())[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_that_breaks_while_a_commit_is_open_ends_the_membership(
    own_stack: Stack, protocol: str
) -> None:
    topic = make_topic(own_stack, 1)
    # What is delivered is counted, so nothing is read again.
    settings = settings_of(own_stack, topic, read_again=False, **PROTOCOLS[protocol])
    kafka = PausedAtCommit(settings, LOG)
    loop, pool = member(kafka, read_again=False)
    producer = Producer({"bootstrap.servers": own_stack.kafka})
    loop.start()
    turn_until(loop, lambda: loop.joined)
    # Twice within the 30 s in which the client leaves out a line that it has logged before.
    for n in (1, 2):
        kafka.stack = own_stack
        producer.produce(topic, b"{}")
        assert producer.flush(60) == 0
        turn_until(loop, lambda: not loop.settled)
        assert break_connections(int(own_stack.kafka.rpartition(":")[2])) > 1
        own_stack.resume_broker()
        if n == 2:
            # A loop that is held up sees the answer before it sees that the connection broke.
            eventually(lambda: committed(own_stack, topic) == 2)
        turn_until(loop, lambda: len(pool.submitted) == n)  # noqa: B023 - called at once
        turn_until(loop, lambda: loop.stats().assigned == 1)
        assert loop.stats().counts["rejoins"] == n
    producer.produce(topic, b"{}")
    producer.flush(60)
    turn_until(loop, lambda: len(pool.submitted) == 3)
    assert loop.stats().counts["rejoins"] == 2
    loop.leave()
    turn_until(loop, lambda: loop.left)


@pytest.mark.parametrize("committing", [False, True])
@pytest.mark.long
def test_a_group_that_a_crashed_broker_has_lost_is_joined_anew(
    own_stack: Stack, *, committing: bool
) -> None:
    topic = make_topic(own_stack, 1)
    kafka = PausedAtCommit(settings_of(own_stack, topic, **PROTOCOLS["consumer"]), LOG)
    loop, pool = member(kafka)
    producer = Producer({"bootstrap.servers": own_stack.kafka})
    loop.start()
    turn_until(loop, lambda: loop.stats().assigned == 1)
    if committing:
        kafka.stack = own_stack
        producer.produce(topic, b"{}")
        assert producer.flush(60) == 0
        turn_until(loop, lambda: not loop.settled)

    own_stack.stop_broker(kill=True)
    broker = next(s for s in own_stack.services if s.name == "kafka-1")
    assert isinstance(broker, Broker)
    for log in (broker.folder / "data").glob("__consumer_offsets-*"):
        shutil.rmtree(log)
    own_stack.start_broker()

    turn_until(loop, lambda: loop.fatal or (loop.stats().assigned == 0))
    turn_until(loop, lambda: loop.fatal or (loop.joined and loop.stats().assigned == 1))
    assert loop.fatal is None
    assert loop.stats().counts["rejoins"] >= 1
    producer.produce(topic, b"{}")
    assert producer.flush(60) == 0
    turn_until(loop, lambda: len(pool.submitted) == 1 + committing)
    loop.leave()
    turn_until(loop, lambda: loop.left)


def test_a_member_whose_heartbeat_is_refused_joins_anew(stack: Stack, tmp_path: Path) -> None:
    """As after a race in the client, which then tells half of what a join takes."""
    topic = make_topic(stack, 2)
    with HeartbeatProxy.of(stack.kafka) as gate:
        kafka = f"127.0.0.1:{gate.port}"
        storm = Storm(kafka, topic, f"g-{topic}", tmp_path, PROTOCOLS["consumer"])
        try:
            members = under_load(storm)
            for _ in range(3):
                gate.spoil = 1
                eventually(lambda: not gate.spoil, 60, storm.errors)
            finish(storm, members)
        finally:
            storm.end()


class FailedAtCommit(Kafka):
    """Its client fails for good when something is committed, as after a refused heartbeat."""

    when = ""

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, tuple[int, int]]
    ) -> Answered | None:
        when, self.when = self.when, ""
        if when == "before":
            fail_fatally(self._consumer, GIVEN_UP)
        answered = super().commit(offsets, metadata, marks)
        if when == "after":
            fail_fatally(self._consumer, GIVEN_UP)
        return answered


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_client_that_fails_for_good_at_a_commit_is_replaced(stack: Stack, when: str) -> None:
    topic = make_topic(stack, 1)
    kafka = FailedAtCommit(settings_of(stack, topic, **PROTOCOLS["consumer"]), LOG)
    loop, pool = member(kafka)
    producer = Producer({"bootstrap.servers": stack.kafka})
    loop.start()
    turn_until(loop, lambda: loop.stats().assigned == 1)
    kafka.when = when
    producer.produce(topic, b"{}")
    assert producer.flush(60) == 0
    turn_until(loop, lambda: loop.fatal or (pool.submitted and loop.stats().assigned == 1))
    assert loop.fatal is None
    assert loop.stats().counts["rejoins"] == 1
    loop.leave()
    turn_until(loop, lambda: loop.left)


class GoneAtCommit(Kafka):
    """Its client fails for good, and loses its broker, when something is committed."""

    proxy: LoneBrokerProxy | None = None

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, tuple[int, int]]
    ) -> Answered | None:
        if self.proxy is not None:
            fail_fatally(self._consumer, "no other client takes its place")
            self.proxy.cut()
        return super().commit(offsets, metadata, marks)


def test_what_a_failed_client_cannot_read_back_holds_up_no_end(stack: Stack) -> None:
    topic = make_topic(stack, 1)
    with LoneBrokerProxy.of(stack.kafka) as proxy:
        settings = settings_of(stack, topic, **PROTOCOLS["consumer"])
        url = f"127.0.0.1:{proxy.port}"
        kafka = GoneAtCommit(settings.model_copy(update={"kafka_bootstrap_servers": url}), LOG)
        loop, _ = member(kafka)
        producer = Producer({"bootstrap.servers": stack.kafka})
        loop.start()
        turn_until(loop, lambda: loop.stats().assigned == 1)
        kafka.proxy = proxy
        producer.produce(topic, b"{}")
        assert producer.flush(60) == 0
        turn_until(loop, lambda: loop.fatal and loop.stats().counts["error:_FATAL"])
        assert not loop.settled
        loop.stop_intake()
        turn_until(loop, lambda: loop.settled)
        assert loop.stats().counts["drop:put out of the group"] == 1
        assert not loop.stats().lost
        proxy.mend()
        loop.leave()
        turn_until(loop, lambda: loop.left)


class PausedAtCommit(Kafka):
    """Pauses the broker just before the next commit is sent."""

    stack: Stack | None = None

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, tuple[int, int]]
    ) -> Answered | None:
        if self.stack is not None:
            self.stack.pause_broker()
            self.stack = None
        return super().commit(offsets, metadata, marks)


@pytest.mark.long  # the chaos run shows it too
def test_a_relay_waits_for_its_broker_and_sends_what_came_meanwhile(
    own_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SEND_TIMEOUT", 2.0)
    topic, schema = make_topic(own_stack, 1), f"test_{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    wanted: list[str] = []
    with psycopg.connect(own_stack.database) as connection:
        migrate(connection, schema, [])

        def add(rows: int) -> None:
            some: list[Any] = [
                ("t", {}, {"request_id": f"r{len(wanted) + n}", "key": "k"}) for n in range(rows)
            ]
            wanted.extend(outbox.add_many(connection, some))
            connection.commit()

        def sent() -> int:
            query = f"SELECT count(*) FROM {schema}.all_requests WHERE state = 'sent'"
            [(n,)] = connection.execute(query.encode()).fetchall()
            connection.commit()
            return int(n)

        routes = {"default": Route(topic, {"bootstrap.servers": own_stack.kafka})}
        with Relay(own_stack.database, routes, schema=schema) as relay:
            add(1)
            eventually(lambda: sent() == 1, 60)
            own_stack.pause_broker()
            add(2500)
            eventually(lambda: relay.states()[0].other, 60)
            assert sent() == 1
            own_stack.stop_broker(kill=True)
            own_stack.start_broker()
            eventually(lambda: sent() == len(wanted), 120)
            assert relay.states()[0].other is None
    assert list(dict.fromkeys(ids(own_stack, topic))) == wanted


def own_cluster_of(sender: str, config: Path, **route: str) -> dict[str, str]:
    """Has a relay's file name a sender's topic, brokers and Redis; the variable that names it."""
    lines = [f"[outbox.routes.{sender}]", *(f'{name} = "{value}"' for name, value in route.items())]
    config.write_text("\n".join([*lines, ""]))
    return {"ONCEPOOL_CONFIG": str(config)}


@pytest.mark.long  # it starts a stack of its own
def test_the_senders_of_two_clusters_do_not_wait_for_each_other(
    stack: Stack, own_stack: Stack, topic: Callable[..., str], outbox_: Outbox, prefix: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    """One `oncepool relay`, with brokers and a Redis of its own for one of them, by its file."""
    orders, bills = topic(), make_topic(own_stack, 2)
    store = RedisStatusStore(own_stack.redis, prefix, timeout=30.0)
    with (
        psycopg.connect(outbox_.url, autocommit=True) as connection,
        LoneBrokerProxy.of(own_stack.kafka) as gate,
        contextlib.closing(store),
        contextlib.closing(Answering(own_stack.kafka, bills, store)),
    ):
        environment = {
            **own_cluster_of(
                "billing", tmp_path / "oncepool.toml", topic=bills, redis_url=own_stack.redis,
                bootstrap_servers=f"127.0.0.1:{gate.port}",
            ),
            "ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url,
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
            "ONCEPOOL_KAFKA_TOPIC": orders,
            "ONCEPOOL_REDIS_URL": stack.redis,
            "ONCEPOOL_REDIS_PREFIX": prefix,
        }  # fmt: skip

        def add(number: int) -> None:
            outbox.add(connection, "t", {}, request_id=f"bill-{number}", sender="billing")
            outbox.add(connection, "t", {}, request_id=f"order-{number}")

        def shows(**wanted: str) -> bool:
            rows = outbox_.rows("SELECT id, state FROM :schema.all_requests")
            found = {row["id"]: row["state"] for row in rows}
            return found == {name.replace("_", "-"): state for name, state in wanted.items()}

        with RelayProcess(environment, tmp_path / "log") as one:
            one.is_ready()
            add(1)
            # The answer stands in the Redis of the sender's own.
            eventually(lambda: shows(bill_1="done", order_1="sent"), 60, lambda: one.log)
            gate.cut()
            add(2)
            away = "[-] billing: brokers: no broker answers"
            eventually(lambda: away in one.ready_text, 60, lambda: one.ready_text + one.log)
            assert "[+] default: brokers: answers" in one.ready_text
            sent = {"bill_1": "done", "order_1": "sent", "order_2": "sent"}
            eventually(lambda: shows(**sent, bill_2="unsent"), 60, lambda: one.log)
            gate.mend()
            eventually(lambda: shows(**sent, bill_2="done"), 60, lambda: one.log)
            one.is_ready()
            assert one.stop() == 0
        assert ids(stack, orders) == ["order-1", "order-2"]
        assert sorted(ids(own_stack, bills, 2)) == ["bill-1", "bill-2"]


@pytest.mark.long
def test_a_broker_without_the_consumer_protocol_gets_the_classic_one() -> None:
    properties = {"group.coordinator.rebalance.protocols": "classic"}
    stack = run.own_stack("classic-only", broker_properties=properties)
    try:
        topic = make_topic(stack)
        kafka = Kafka(settings_of(stack, topic), LOG)
        assert kafka.protocol == "consumer"
        loop, _ = member(kafka)
        loop.start()
        turn_until(loop, lambda: loop.joined)
        assert kafka.protocol == "classic"
        assert loop.fatal is None
        loop.leave()
        turn_until(loop, lambda: loop.left)
    finally:
        stack.down(delete=True)
