"""A topic that is deleted and made anew under a running instance, on a real broker."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import orjson
import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer.config.settings import Settings
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from feedback.contract.record import VALUE
from processing.logs import get_logger
from stack import Stack
from tests.conftest import TopicFactory
from tests.support.fake_pool import FakePool
from tests.support.kafka_frames import is_offset_commit
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.proxy import Link
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually


class LateCommits(LoneBrokerProxy):
    """One that keeps the answers to commits until it is told to pass them on."""

    def __init__(self, host: str, target: int, port: int = 0) -> None:
        self.kept = threading.Event()
        self.passes = threading.Event()
        super().__init__(host, target, port)

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up and is_offset_commit(unit):
            link.asked.add(unit[8:12])
        elif not up and unit[4:8] in link.asked:
            link.asked.discard(unit[4:8])
            self.kept.set()
            self.passes.wait()
        return super()._as_passed_on(link, unit, up=up)


def make_anew(stack: Stack, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)


def test_what_was_committed_of_the_old_topic_runs_beside_the_new_one(
    stack: Stack, topic: TopicFactory, group: str
) -> None:
    name, pool = topic(), FakePool()
    producer = Producer({"bootstrap.servers": stack.kafka})
    for _ in range(5):
        producer.produce(name, b"old")
    assert producer.flush(60) == 0
    with LateCommits.of(stack.kafka) as proxy:
        kafka = Kafka(
            Settings(
                kafka_topics=[name], kafka_group=group, kafka_protocol="classic",
                kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}",
            ),
            get_logger("test"),
        )  # fmt: skip
        loop = Loop(kafka, pool, FlowControl(100, 1 << 20), "me", get_logger("test"))
        loop.start()

        def turned() -> bool:
            loop.turn()
            return True

        eventually(lambda: turned() and proxy.kept.is_set(), 90)
        eventually(lambda: turned() and loop.stats().counts["polled"] == 5, 90)
        committed = len(loop._commit._open.pieces[name, 0].records)
        make_anew(stack, name)
        producer.produce(name, b"new")
        assert producer.flush(60) == 0
        eventually(lambda: turned() and loop.stats().counts.get("restarted"), 90)
        assert pool.submitted == []
        proxy.passes.set()
        eventually(lambda: turned() and (b"new" in (r[VALUE] for r in pool.submitted)), 90)
        assert [record[VALUE] for record in pool.submitted] == [b"old"] * committed + [b"new"]
        kafka.close()


@pytest.mark.long
def test_what_waits_of_the_old_topic_is_run_to_its_end_at_a_stop(
    bench: Bench, tmp_path: Path
) -> None:
    """Nobody else can read it: the next owner finds other messages at its offsets."""
    instance = bench.start(ONCEPOOL_KAFKA_PROTOCOL="classic", ONCEPOOL_GRACE="200")
    go_on = tmp_path / "go on"
    first = {"seconds": 50.0, "until": str(go_on), "table": bench.table}
    asked = [bench.client.submit("paced", first, key="k")]
    effect = {"table": bench.table}
    asked += [bench.client.submit("effect", effect, key="k") for _ in range(5)]
    eventually(lambda: bench.said()["in_hand"] == len(asked), WAIT)
    make_anew(bench.stack, bench.topic)
    producer = Producer({"bootstrap.servers": bench.stack.kafka})
    headers: list[tuple[str, str | bytes | None]] = [("ce_id", "new"), ("ce_type", "compute")]
    producer.produce(bench.topic, b"{}", headers=headers)
    assert producer.flush(60) == 0
    instance.says("a topic was made anew")
    instance.process.send_signal(signal.SIGTERM)
    instance.says("draining", 2)
    go_on.touch()
    assert instance.process.wait(WAIT) == 0
    done = bench.query(f"SELECT id FROM {bench.schema}.requests WHERE state = 'done'")
    assert {row[0] for row in done} >= set(asked)


def test_an_idle_instance_leaves_no_offset_of_the_old_topic_to_the_new_one(bench: Bench) -> None:
    """The broker takes the partition away and gives it back: a last commit may be made between."""
    old, new = [f"old-{n}" for n in range(20)], [f"new-{n}" for n in range(30)]
    instance = bench.start(ONCEPOOL_KAFKA_PROTOCOL="consumer")
    send(bench, old)
    eventually(lambda: bench.done() == len(old), WAIT)
    eventually(lambda: committed(bench)[1] == len(old), WAIT)
    make_anew(bench.stack, bench.topic)
    instance.says("partitions revoked")
    eventually(lambda: bench.said().get("assigned") == 1, WAIT)
    assert instance.stop() == 0
    assert committed(bench) == (OFFSET_INVALID, None)
    send(bench, new)
    bench.start(ONCEPOOL_KAFKA_PROTOCOL="consumer")
    eventually(lambda: bench.waiting() == 0, WAIT)
    eventually(lambda: bench.done() == len(old) + len(new), WAIT)
    bench.check_books({*old, *new})


def send(bench: Bench, ids: list[str]) -> None:
    """Requests in the first partition of the topic, which are there when this returns."""
    producer = Producer({"bootstrap.servers": bench.stack.kafka})
    payload = orjson.dumps({"table": bench.table})
    for name in ids:
        headers: list[tuple[str, str | bytes | None]] = [("ce_id", name), ("ce_type", "effect")]
        producer.produce(bench.topic, payload, name, 0, headers=headers)
    assert producer.flush(60) == 0


def committed(bench: Bench) -> tuple[int, int | None]:
    """The offset that the group has committed for the first partition, and the low mark with it."""
    consumer = Consumer({"bootstrap.servers": bench.stack.kafka, "group.id": bench.group})
    [found] = consumer.committed([TopicPartition(bench.topic, 0)], 60)
    consumer.close()
    told = (found.metadata or "").split(";")[2:]
    return found.offset, int(told[0]) if told else None
