"""One partition that takes nothing: the others go on, and it goes on where it stood."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer.config.settings import Settings
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from consumer.intake.offset_metadata import LowMark, gap_of, metadata_of
from feedback import outbox
from feedback.contract.record import OFFSET, PARTITION, is_read_again
from feedback.journal import migrations as journal_migrations
from feedback.journal.result_outbox import ResultRecord, add_results
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route
from feedback.partitions import partition_of
from processing.logs import get_logger
from processing.maintenance.result_producer import ResultProducer, connect
from processing.maintenance.result_relay import ResultRelay
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support import run
from tests.support.fake_pool import FakePool
from tests.support.waiting import eventually

CLASSIC = {"kafka_protocol": "classic", "kafka_session_timeout": 6}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": CLASSIC | {"kafka_assignor": "range"},
    "cooperative-sticky": CLASSIC | {"kafka_assignor": "cooperative-sticky"},
    "consumer": {"kafka_protocol": "consumer"},
}
LOG = get_logger("test")
pytestmark = pytest.mark.long  # three brokers take long to start

LONELY = 2
"""A partition that only the third broker has, or that takes nothing without it."""
NO_LEADER: list[list[int]] = [[1], [2], [3]]
TOO_FEW: list[list[int]] = [[1, 2], [2, 1], [1, 3]]
"""Where each message needs two replicas."""
MARK, COMMITTED, END = 3, 6, 10


@pytest.fixture(scope="module")
def brokers() -> Iterator[Stack]:
    made = run.own_stack(f"three-{uuid.uuid4().hex[:8]}", brokers=3)
    yield made
    made.down(delete=True)


NO_COORDINATOR_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


class Group:
    """A topic whose partitions have these replicas, and all need them; where its group stands."""

    def __init__(self, stack: Stack, replicas: list[list[int]] = NO_LEADER) -> None:
        self.stack = stack
        self.topic = f"lonely-{uuid.uuid4().hex[:12]}"
        self.name = f"g-{self.topic}"
        self._admin = AdminClient({"bootstrap.servers": stack.kafka})
        self._needed = len(replicas[LONELY])
        wanted = NewTopic(
            self.topic, 3, replica_assignment=replicas,
            config={"min.insync.replicas": str(self._needed)},
        )  # fmt: skip
        self._admin.create_topics([wanted])[self.topic].result(30)
        self._producer = Producer({"bootstrap.servers": stack.kafka})

    def produce(self, count: int, *partitions: int) -> None:
        for partition in partitions:
            for _ in range(count):
                self._producer.produce(self.topic, b"{}", partition=partition)
        assert self._producer.flush(60) == 0

    def died(self) -> None:
        """Whoever owned the partitions died before it had finished what it had committed."""
        metadata = metadata_of("1;dead-1;", LowMark(MARK))
        places = [TopicPartition(self.topic, n, COMMITTED, metadata) for n in range(3)]

        def commits(client: Consumer) -> bool:
            try:
                client.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                # A cluster this new is still making its groups' coordinators.
                if error.args[0].code() in NO_COORDINATOR_YET:
                    return False
                raise
            return True

        eventually(lambda: self._with_client(commits), 60)

    def committed(self) -> list[tuple[int, str]]:
        """Offset and metadata of each partition."""
        places = [TopicPartition(self.topic, n) for n in range(3)]
        found = self._with_client(lambda client: client.committed(places, 60))
        return [(p.offset, p.metadata) for p in found]

    def _with_client(self, ask: Callable[[Consumer], Any]) -> Any:
        client = Consumer({"bootstrap.servers": self.stack.kafka, "group.id": self.name})
        try:
            return ask(client)
        finally:
            client.close()

    def lonely(self) -> bool:
        """Whether the one partition takes nothing, and the others do."""
        found = self._admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        takes = [p for p, it in found.items() if it.leader >= 0 and len(it.isrs) >= self._needed]
        return sorted(takes) == [0, 1]


def taken(pool: FakePool) -> dict[int, list[int]]:
    """Partition -> offsets that were delivered."""
    found: dict[int, list[int]] = {}
    for record in pool.submitted:
        found.setdefault(record[PARTITION], []).append(record[OFFSET])
    return found


@pytest.mark.parametrize(
    "protocol, kill",
    [
        ("range", False),
        ("cooperative-sticky", False),
        ("consumer", True),
    ],
)
def test_one_partition_without_a_leader_keeps_no_other_and_goes_on_where_it_stood(
    brokers: Stack, protocol: str, *, kill: bool
) -> None:
    group = Group(brokers)
    group.produce(END, 0, 1, LONELY)
    group.died()
    brokers.stop_broker(3, kill=kill)
    eventually(group.lonely)
    settings = Settings(
        kafka_bootstrap_servers=brokers.kafka,
        kafka_topics=[group.topic],
        kafka_group=group.name,
        auto_offset_reset="latest",
        **PROTOCOLS[protocol],
    )
    pool = FakePool()
    loop = Loop(Kafka(settings, LOG), pool, FlowControl(1000, 1 << 20), "me", LOG)

    def turn_until(condition: Callable[[], object]) -> None:
        eventually(lambda: (loop.turn(), condition())[1])

    loop.start()
    try:
        both = list(range(MARK, END))
        turn_until(lambda: taken(pool) == {0: both, 1: both})
        group.produce(5, 0, 1)
        both = list(range(MARK, END + 5))
        turn_until(lambda: taken(pool) == {0: both, 1: both})
        assert loop.stats().without_start == ((group.topic, LONELY),)
        assert group.committed()[LONELY] == (COMMITTED, metadata_of("1;dead-1;", LowMark(MARK)))

        brokers.start_broker(3)
        turn_until(lambda: len(taken(pool).get(LONELY, [])) >= END - MARK)
        assert loop.stats().without_start == ()
        group.produce(5, 0, 1, LONELY)
        turn_until(lambda: len(pool.submitted) >= 3 * (END - MARK + 5) + 10)
        assert taken(pool) == {
            0: list(range(MARK, END + 10)),
            1: list(range(MARK, END + 10)),
            LONELY: list(range(MARK, END + 5)),
        }
        lonely = [is_read_again(r) for r in pool.submitted if r[PARTITION] == LONELY]
        assert lonely == [True] * (COMMITTED - MARK) + [False] * (END + 5 - COMMITTED)
        assert loop.stats().counts.get("rejoins", 0) == 0
        turn_until(lambda: all(gap_of(*one) is None for one in group.committed()))
        assert [offset for offset, _ in group.committed()] == [END + 10, END + 10, END + 5]
    finally:
        brokers.heal()
        loop.leave()
        turn_until(lambda: loop.left)


@pytest.mark.parametrize("replicas", [NO_LEADER, TOO_FEW], ids=["no leader", "too few replicas"])
def test_a_relay_sends_to_the_partitions_that_take_messages(
    brokers: Stack, monkeypatch: pytest.MonkeyPatch, replicas: list[list[int]]
) -> None:
    """Whose requests are not behind those that nobody takes, however many there are of these.

    Nor are they for a relay that begins then.
    """
    group = Group(brokers, replicas)
    place = f"outbox_{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", place)
    with psycopg.connect(brokers.database, autocommit=True) as connection:
        migrate(connection, place, [])
        added: list[str] = []

        def add(count: int) -> None:
            names = [f"r{len(added) + n}" for n in range(count)]
            added.extend(names)
            outbox.add_many(connection, [("t", {}, {"request_id": name}) for name in names])

        def unsent() -> set[str]:
            query = f"SELECT id FROM {place}.requests WHERE state = 'unsent'"
            return {name for (name,) in connection.execute(query.encode())}

        def tried() -> bool:
            query = f"SELECT FROM {place}.requests WHERE state = 'unsent' AND sent_at IS NOT NULL"
            return connection.execute(query.encode()).fetchone() is not None

        def lonely() -> set[str]:
            return {name for name in added[30:] if partition_of(name.encode(), 3) == LONELY}

        routes = {"default": Route(group.topic, {"bootstrap.servers": brokers.kafka})}
        add(30)
        try:
            with Relay(brokers.database, routes, schema=place) as relay:
                eventually(lambda: not unsent())
                brokers.stop_broker(3, kill=True)
                eventually(group.lonely)
                for count in (900, 30, 3):
                    add(count)
                    eventually(lambda: unsent() == lonely(), 60)
                assert relay.states()[0].other is None
            anew = f"UPDATE {place}.requests SET sent_at = NULL WHERE state = 'unsent'"
            connection.execute(anew.encode())
            with Relay(brokers.database, routes, schema=place) as relay:
                eventually(tried)
                for count in (300, 30):
                    add(count)
                    eventually(lambda: unsent() == lonely(), 60)
                assert relay.states()[0].other is None
                brokers.start_broker(3)
                eventually(lambda: not unsent(), 120)
        finally:
            brokers.heal()


@pytest.mark.parametrize("replicas", [NO_LEADER, TOO_FEW], ids=["no leader", "too few replicas"])
def test_result_records_go_to_the_partitions_that_take_messages(
    brokers: Stack, replicas: list[list[int]]
) -> None:
    """Also behind more than are taken at once of those that nobody takes, and by a new instance."""
    group = Group(brokers, replicas)
    place = f"journal_{uuid.uuid4().hex[:8]}"
    journal_migrations.migrate(brokers.database, place)
    settings = MaintenanceSettings(
        instance=place, database_url=brokers.database, schema=place, redis_url=brokers.redis,
        redis_prefix="none", log={},
    )  # fmt: skip

    def begin() -> ResultRelay:
        properties = {"bootstrap.servers": brokers.kafka}
        made = ResultRelay(settings, ResultProducer(group.topic, partial(connect, properties)), LOG)
        made.start()
        return made

    relay = begin()
    with psycopg.connect(brokers.database, autocommit=True) as connection:

        def add(tag: str, count: int) -> None:
            names = [f"{tag}-{n}" for n in range(count)]
            records = [ResultRecord(name, "t", "done", "ok") for name in names]
            add_results(connection.cursor(), place, records)
            relay.wake()

        def left() -> list[int]:
            found = connection.execute(f"SELECT request_id FROM {place}.results".encode())
            return sorted({partition_of(name.encode(), 3) for (name,) in found})

        try:
            add("warm", 30)
            eventually(lambda: not left())
            brokers.stop_broker(3, kill=True)
            eventually(group.lonely)
            for tag, count in (("first", 3000), ("second", 30)):
                add(tag, count)
                eventually(lambda: left() == [LONELY], 60)
            relay.stop()
            relay.join(60)
            relay = begin()
            add("third", 30)
            eventually(lambda: left() == [LONELY], 60)
            brokers.start_broker(3)
            eventually(lambda: not left(), 120)
        finally:
            brokers.heal()
            relay.stop()
            relay.join(60)
