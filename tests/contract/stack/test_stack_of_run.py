"""What the fixtures promise to other tests."""

from __future__ import annotations

import psycopg
import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from stack import Stack
from tests.conftest import TopicFactory
from tests.support import eventually


def test_the_shared_stack_serves(
    stack: Stack, topic: TopicFactory, group: str, prefix: str
) -> None:
    name = topic(partitions=3)
    producer = Producer({"bootstrap.servers": stack.kafka})
    producer.produce(name, b"value", b"key", partition=2)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": stack.kafka, "group.id": group, "auto.offset.reset": "earliest",
         "group.protocol": "consumer"}
    )  # fmt: skip
    consumer.subscribe([name])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value(), message.partition()) == (b"key", b"value", 2)

    with psycopg.connect(stack.database) as database:
        assert database.execute("SHOW server_version").fetchone()[0].startswith("18.")
        assert database.execute("SHOW fsync").fetchone() == ("on",)
        assert database.execute("SHOW max_connections").fetchone() == ("200",)

    with redis.Redis.from_url(stack.redis) as valkey:
        assert valkey.set(f"{prefix}:x", "1", ex=5)
        assert valkey.info("server")["valkey_version"].startswith("9.")


def topics_of(stack: Stack) -> set[str]:
    return set(AdminClient({"bootstrap.servers": stack.kafka}).list_topics(timeout=60).topics)


@pytest.mark.parametrize("turn", [1, 2])
def test_topics_go_with_the_test_that_made_them(
    stack: Stack, topic: TopicFactory, turn: int
) -> None:
    assert not [name for name in topics_of(stack) if name.startswith("gone-")]
    made = topic(name="gone")
    eventually(lambda: made in topics_of(stack))


@pytest.mark.long
def test_what_a_test_breaks_is_whole_for_the_next_one(own_stack: Stack) -> None:
    own_stack.pause_database()
    own_stack.stop_redis(kill=True)


@pytest.mark.long
def test_the_next_one(own_stack: Stack) -> None:
    assert {service.state for service in own_stack.status()} == {"running"}
    with psycopg.connect(own_stack.database, connect_timeout=60) as database:
        database.execute("SELECT 1")
