"""The edge to a real broker: what messages become, and in which order things are told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from consumer.config.settings import Settings
from consumer.intake.events import (
    Answered,
    Assigned,
    Event,
    OffsetReset,
    Polled,
    Revoked,
    Trouble,
)
from consumer.intake.kafka import Kafka
from consumer.intake.offset_metadata import LowMark
from feedback.contract.record import HEADERS, KEY, OFFSET, TYPE, VALUE, Record
from processing.logs import get_logger
from stack import Stack
from tests.conftest import TopicFactory
from tests.support.waiting import eventually


class NotUtf8(str):
    """A header's name that goes out as other bytes."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:  # type: ignore[override]
        return b"\xff\xfe"


Make = Callable[..., Kafka]


@pytest.fixture
def make(stack: Stack, group: str) -> Iterator[Make]:
    made: list[Kafka] = []

    def one(topic: str, **settings: Any) -> Kafka:
        given = {"kafka_bootstrap_servers": stack.kafka, "kafka_group": group} | settings
        kafka = Kafka(Settings(kafka_topics=[topic], **given), get_logger("test"))
        kafka.subscribe()
        made.append(kafka)
        return kafka

    yield one
    for kafka in made:
        kafka.close()


def events_until(
    kafka: Kafka, condition: Callable[[list[Event]], object], most: int = 1000
) -> list[Event]:
    events: list[Event] = []

    def enough() -> bool:
        events.extend(kafka.poll(most, 0.05))
        return bool(condition(events))

    eventually(enough)
    return events


def records(events: list[Event]) -> list[Record]:
    return [record for e in events if isinstance(e, Polled) for record in e.records]


def test_what_messages_become(stack: Stack, topic: TopicFactory, make: Make) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": stack.kafka})
    producer.produce(name, b"{}", key=b"k", headers=[("ce_id", b"1"), ("ce_type", b"a.b")])
    producer.produce(name, None)
    producer.produce(name, b"v", headers=[("ce_type", b"\xff"), ("x", None)])
    producer.produce(name, b"v", headers=[("ce_type", b"a"), ("ce_type", b"b")])
    assert producer.flush(60) == 0
    odd = KafkaProducer(bootstrap_servers=stack.kafka)
    odd.send(name, b"odd", headers=[(NotUtf8("?"), b"1")]).get(60)
    odd.close()
    producer.produce(name, b"last")
    producer.flush(60)

    got = records(events_until(make(name), lambda events: len(records(events)) == 6))
    assert [r[OFFSET] for r in got] == list(range(6))
    assert got[0][:2] == (name, 0)
    assert abs(got[0][3] / 1000 - time.time()) < 120
    assert (got[0][KEY], got[0][VALUE], got[0][TYPE]) == (b"k", b"{}", "a.b")
    assert got[0][HEADERS] == [("ce_id", b"1"), ("ce_type", b"a.b")]
    assert got[1][KEY:] == (None, None, [], None, None)
    assert (got[2][HEADERS], got[2][TYPE]) == ([("ce_type", b"\xff"), ("x", None)], None)
    assert got[3][TYPE] == "b", "of two headers of one name the last one counts"
    assert (got[4][HEADERS], got[4][TYPE]) == (None, None), "unreadable, and nobody else's loss"
    assert (got[5][HEADERS], got[5][VALUE]) == ([], b"last")


def test_a_header_that_cannot_be_read_is_survived_by_a_process_that_has_read_many(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    """The interpreter calls differently what it has called often, and checks less."""
    name = topic()
    producer = Producer({"bootstrap.servers": stack.kafka})
    for _ in range(2000):
        producer.produce(name, b"{}", headers=[("ce_id", b"1"), ("ce_type", b"a.b")])
    assert producer.flush(60) == 0
    odd = KafkaProducer(bootstrap_servers=stack.kafka)
    for _ in range(3):
        odd.send(name, b"odd", headers=[("ce_type", b"a"), (NotUtf8("?"), b"1")]).get(60)
    odd.close()
    producer.produce(name, b"last")
    producer.flush(60)
    got = records(events_until(make(name), lambda events: len(records(events)) == 2004))
    assert [r[HEADERS] for r in got[-4:]] == [None, None, None, []]


def test_a_poll_takes_what_is_there_without_waiting_for_more(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    name = topic()
    kafka = make(name)
    events_until(kafka, lambda events: any(isinstance(e, Assigned) for e in events))
    producer = Producer({"bootstrap.servers": stack.kafka})
    for _ in range(10):
        producer.produce(name, b"{}")
    producer.flush(60)
    assert len(records(kafka.poll(1, 3600.0))) == 1
    # What is behind is known once it was fetched, polled or not.
    eventually(lambda: kafka.lag() == {name: 9})
    assert records(kafka.poll(1000, 3600.0))
    assert kafka.poll(3, 0.0) is not None
    events_until(kafka, lambda _: kafka.lag() == {name: 0})


def test_a_commit_is_answered_with_its_token_and_read_back_with_it(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    name = topic(2)
    kafka = make(name)
    events_until(kafka, lambda events: any(isinstance(e, Assigned) for e in events))
    places = [(name, 0), (name, 1)]
    marks = {places[0]: LowMark(5), places[1]: LowMark(6, 2, 7)}
    assert kafka.commit(dict.fromkeys(places, 7), "1;me-1;", marks) is None
    events = events_until(kafka, lambda events: any(isinstance(e, Answered) for e in events))
    assert events == [Answered("1;me-1;", None, dict.fromkeys(places))]
    found = {places[0]: (7, "1;me-1;5"), places[1]: (7, "1;me-1;6;2;7")}
    assert kafka.committed(places, 60.0) == found
    kafka.unsubscribe()
    events = events_until(kafka, lambda events: any(isinstance(e, Revoked) for e in events))
    assert set(events[0].places) == set(places)  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_nothing_is_committed_by_a_process_that_is_no_member(
    topic: TopicFactory, make: Make, protocol: str
) -> None:
    # The broker would take it: a group without members accepts a commit without a generation.
    name = topic()
    kafka = make(name, kafka_protocol=protocol)
    events_until(kafka, lambda events: any(isinstance(e, Assigned) for e in events))
    assert kafka.member
    kafka.unsubscribe()
    events_until(kafka, lambda _: not kafka.member)
    refused = kafka.commit({(name, 0): 3}, "1;stranger-1;", {})
    assert refused == Answered("1;stranger-1;", "UNKNOWN_MEMBER_ID", {}, sent=False)
    assert kafka.committed([(name, 0)], 60.0)[name, 0][0] < 0


def test_a_topic_that_is_deleted_and_made_anew_says_that_offsets_start_anew(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    # In a classic group nobody is told, and the assignment stays.
    name = topic()
    producer = Producer({"bootstrap.servers": stack.kafka})
    for _ in range(10):
        producer.produce(name, b"old")
    assert producer.flush(60) == 0
    kafka = make(name, kafka_protocol="classic")
    events_until(kafka, lambda events: len(records(events)) == 10)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.delete_topics([name])[name].result(30)
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(30)
    producer.produce(name, b"new")
    assert producer.flush(60) == 0
    events = events_until(kafka, records)
    # Or the group has seen in between that the topic was gone.
    assert any(e == OffsetReset((name, 0)) or isinstance(e, Revoked) for e in events[:-1])
    assert [(r[OFFSET], r[VALUE]) for r in records(events)] == [(0, b"new")]


def test_a_topic_that_is_deleted_is_missing_until_it_is_made_again(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    # With KIP-848, as the client itself says nothing of it there.
    name = topic()
    kafka = make(name, kafka_protocol="consumer")
    events_until(kafka, lambda events: any(isinstance(e, Assigned) for e in events))
    events_until(kafka, lambda _: kafka.missing_topics == ())
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.delete_topics([name])[name].result(30)
    events_until(kafka, lambda _: kafka.missing_topics == (name,))
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(30)
    events_until(kafka, lambda _: kafka.missing_topics == ())


def test_an_error_of_a_commit_comes_with_its_token(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    name = topic()
    kafka = make(name)
    events_until(kafka, lambda events: any(isinstance(e, Assigned) for e in events))
    too_long = f"1;{'x' * 5000};"
    assert kafka.commit({(name, 0): 3}, too_long, {}) is None
    events = events_until(kafka, lambda events: any(isinstance(e, Answered) for e in events))
    code = "OFFSET_METADATA_TOO_LARGE"
    assert events == [Answered(too_long, code, {(name, 0): code})]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_without_partitions_is_a_member(
    topic: TopicFactory, make: Make, protocol: str
) -> None:
    name = topic()
    first = make(name, kafka_protocol=protocol)
    events_until(first, lambda events: any(isinstance(e, Assigned) for e in events))
    second = make(name, kafka_protocol=protocol)

    def both_are() -> bool:
        first.poll(1, 0.02)
        second.poll(1, 0.02)
        return first.member and second.member

    eventually(both_are)


def test_paused_partitions_give_nothing_and_resume(
    stack: Stack, topic: TopicFactory, make: Make
) -> None:
    name = topic()
    kafka = make(name)
    events_until(kafka, lambda events: any(isinstance(e, Assigned) for e in events))
    kafka.pause([(name, 0)], paused=True)
    producer = Producer({"bootstrap.servers": stack.kafka})
    producer.produce(name, b"{}")
    producer.flush(60)
    assert records(kafka.poll(10, 0.5)) == []
    kafka.pause([(name, 0)], paused=False)
    assert records(events_until(kafka, records))


def test_a_topic_that_is_not_there_is_told(make: Make) -> None:
    kafka = make("no-such-topic", kafka_protocol="classic")
    events = events_until(kafka, lambda events: any(isinstance(e, Trouble) for e in events))
    [trouble] = [event for event in events if isinstance(event, Trouble)]
    assert trouble.code == "UNKNOWN_TOPIC_OR_PART"
    assert not trouble.fatal


def test_committed_offsets_that_cannot_be_read_are_left_out(make: Make) -> None:
    kafka = make("t", kafka_bootstrap_servers="127.0.0.1:1")
    assert kafka.committed([("t", 0)], 0.2) == {}
