"""Brokers refuse whole sets of messages, and rows of a key come in order all the same."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from feedback import outbox
from feedback.outbox.relay.database import RelayDatabase
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.topic import TopicLimit
from feedback.outbox.relay.turns import SendTurns
from feedback.postgres import open_connection
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.topic_reader import ids

KEYS = 10


def add(outbox_: Outbox, numbers: range, size: int) -> None:
    """Rows of some keys, by turns."""
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(
            connection,
            [("t", "x" * size, {"request_id": f"{n:04d}", "key": f"k{n % KEYS}"}) for n in numbers],
        )


class Sender:
    """One that sends to a topic, turn by turn."""

    def __init__(
        self,
        stack: Stack,
        outbox_: Outbox,
        topic: str,
        given: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        properties = {"bootstrap.servers": stack.kafka, **(given or {})}
        self.topic = TopicSender(topic, properties, **options)
        self._outbox = outbox_
        self._turns = SendTurns("default", self.topic)

    def send(self) -> None:
        """All that is due."""
        with open_connection(self._outbox.url, "test") as connection:
            database = RelayDatabase(connection, self._outbox.schema, "default")
            database.prepare()
            while self._turns.turn(database):
                pass

    def close(self) -> None:
        """Leaves the topic."""
        self.topic.close()


def out_of_order(stack: Stack, topic: str, partitions: int = 1) -> dict[str, list[int]]:
    """By key, the requests that first came behind a later one."""
    found: dict[str, list[int]] = defaultdict(list)
    latest: dict[str, int] = {}
    first = dict.fromkeys(ids(stack, topic, partitions))
    for number in (int(id_) for id_ in first if id_ != "ahead"):
        key = f"k{number % KEYS}"
        if number < latest.setdefault(key, number):
            found[key].append(number)
        latest[key] = max(latest[key], number)
    return dict(found)


def all_sent(outbox_: Outbox, number: int) -> bool:
    [row] = outbox_.rows("SELECT count(*) AS n FROM :schema.requests WHERE state = 'sent'")
    return bool(row["n"] == number)


def lower(stack: Stack, topic: str, limit: int) -> None:
    """Sets what the topic takes."""
    entry = ConfigEntry(
        "max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.incremental_alter_configs([resource])[resource].result(30)


def add_ahead(outbox_: Outbox) -> None:
    """A row of a machine whose clock is ahead."""
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", {}, request_id="ahead", key="own")
    outbox_.run(
        "UPDATE :schema.requests SET created_at = now() + interval '2 h' WHERE id = 'ahead'"
    )


@pytest.mark.parametrize(
    "size, count, partitions, given",
    [
        (1_500, 1_000, 1, {}),
        (10_000, 500, 1, {}),
        (10_000, 700, 3, {}),
        (10_000, 500, 3, {"partitioner": "fnv1a"}),
        (300, 1_000, 1, {"linger.ms": 0, "queue.buffering.max.ms": 0, "batch.num.messages": 50}),
    ],
    ids=["small", "large", "partitions", "partitioner", "many sets"],
)
def test_one_row_that_is_refused_puts_no_other_key_out_of_order(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    size: int,
    count: int,
    partitions: int,
    given: Mapping[str, Any],
) -> None:
    """A backlog of some sets."""
    name = topic(partitions)
    add(outbox_, range(count // 4), size)
    add_ahead(outbox_)
    add(outbox_, range(count // 4, count), size)
    sender = Sender(stack, outbox_, name, given=given)
    sender.send()
    sender.close()
    assert all_sent(outbox_, count)
    assert out_of_order(stack, name, partitions) == {}
    [ahead] = outbox_.rows("SELECT code FROM :schema.requests WHERE id = 'ahead'")
    assert ahead["code"] == "clock_ahead"


def test_nothing_of_its_key_overtakes_a_row_that_is_refused(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str]
) -> None:
    name = topic()
    sender = Sender(stack, outbox_, name)
    add(outbox_, range(10), 1)
    sender.send()
    add_ahead(outbox_)
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", "x" * 10_000, {"key": "own"}) for _ in range(500)])
    sender.send()
    sender.close()
    assert ids(stack, name) == [f"{n:04d}" for n in range(10)]


@pytest.mark.parametrize("size, limit", [(100, 50_000), (3_000, 500_000)])
def test_sets_that_are_too_large_where_the_limit_is_not_known_are_in_order(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], size: int, limit: int
) -> None:
    """As where the relay's user may not see the topic's configuration."""
    name = topic(**{"max.message.bytes": str(limit)})
    add(outbox_, range(700), size)
    sender = Sender(stack, outbox_, name, limit=lambda *_: TopicLimit())
    sender.send()
    sender.close()
    assert all_sent(outbox_, 700)
    assert out_of_order(stack, name) == {}


@pytest.mark.parametrize("size, limit", [(1_000, 200_000), (3_000, 500_000)])
def test_sets_are_in_order_and_soon_fit_where_the_limit_is_lowered_meanwhile(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], size: int, limit: int
) -> None:
    """It is looked up again, though each row fits."""
    name, passed = topic(), [0.0]
    sender = Sender(stack, outbox_, name, clock=lambda: time.monotonic() + passed[0])
    add(outbox_, range(100), size)
    sender.send()
    lower(stack, name, limit)
    add(outbox_, range(100, 800), size)
    sender.send()
    assert all_sent(outbox_, 800)
    assert out_of_order(stack, name) == {}
    passed[0] += 10.0
    sender.send()
    assert sender.topic.largest == limit
    sender.close()
