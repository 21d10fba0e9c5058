"""What the relay's producer makes of what brokers say."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer

from feedback.outbox.relay.batch import Batch, BatchMarks, ClaimedRow
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.topic import TopicLimit, topic_limit
from stack import Stack
from tests.support.topic_reader import messages


def row(seq: int, payload: bytes = b"{}", key: bytes | None = b"k") -> ClaimedRow:
    headers = [("ce_reference", b"x")]
    return ClaimedRow(
        seq, f"r{seq}", "t", key, payload, headers, datetime.now(UTC), datetime.now(UTC), 0
    )


def sender(stack: Stack, topic: str) -> TopicSender:
    made = TopicSender(topic, {"bootstrap.servers": stack.kafka})
    assert made.open() is None
    return made


def test_rows_arrive_as_they_stand_and_in_order(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic()
    sending = sender(stack, name)
    rows = [row(n) for n in range(200)]
    batch = Batch(rows, sending.check)
    assert sending.send(batch, batch.to_send, 30) is None
    assert batch.marks().sent == list(range(200))
    sending.close()
    found = messages(stack, name)
    assert [m.headers()[0] for m in found] == [("ce_id", b"r%d" % n) for n in range(200)]
    first = found[0]
    assert (first.key(), first.value()) == (b"k", b"{}")
    assert first.headers()[1:] == [("ce_type", b"t"), ("ce_reference", b"x")]
    assert first.timestamp()[1] == round(rows[0].created_at.timestamp() * 1000)


def test_what_the_topic_does_not_take_is_known_before_it_is_sent(
    stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic(**{"max.message.bytes": "2000"})
    sending = sender(stack, name)
    rows = [
        row(1, b"1"),
        row(2, b"2" * 5000),
        row(3, b"3"),
        *(row(n, b"", b"l") for n in range(4, 99)),
    ]
    batch = Batch(rows, sending.check)
    assert sending.send(batch, batch.to_send, 30) is None
    sending.close()
    sent, [refused], *_ = batch.marks()
    assert (refused.seq, refused.refusal.code) == (2, "too_large")
    assert sent == [1, *range(4, 99)]  # its key waits, others do not


def test_a_topic_without_a_bound_is_sent_to(stack: Stack, topic: Callable[..., str]) -> None:
    """It takes larger messages than librdkafka sends."""
    name = topic(**{"max.message.bytes": str(2**31 - 1)})
    sending = sender(stack, name)
    batch = Batch([row(1)], sending.check)
    assert sending.send(batch, batch.to_send, 30) is None
    sending.close()
    assert batch.marks().sent == [1]


def test_what_only_the_brokers_refuse_is_found_among_the_others(
    stack: Stack, topic: Callable[..., str]
) -> None:
    """As where the brokers don't tell what the topic takes."""
    name = topic(**{"max.message.bytes": "2000"})
    sending = TopicSender(
        name, {"bootstrap.servers": stack.kafka}, limit=lambda *_: TopicLimit(1_000_000)
    )
    assert sending.open() is None
    batch = Batch([row(1, b"1"), row(2, b"2" * 5000, b"l"), row(3, b"3", b"m")], sending.check)
    assert sending.send(batch, batch.to_send, 30) is None
    sending.close()
    sent, [refused], *_ = batch.marks()
    assert (sent, refused.seq, refused.refusal.code) == ([1, 3], 2, "too_large")


SEGMENT = 1024 * 1024
"""Bytes: the least that a broker takes for segment.bytes."""


def test_a_message_larger_than_a_segment_is_known_before_it_is_sent(
    stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic(**{"max.message.bytes": str(4 * SEGMENT), "segment.bytes": str(SEGMENT)})
    sending = sender(stack, name)
    batch = Batch([row(1), row(2, b"2" * 2 * SEGMENT, b"l"), row(3, b"3", b"m")], sending.check)
    assert [one.seq for one in batch.to_send] == [1, 3]
    assert sending.send(batch, batch.to_send, 30) is None
    sending.close()
    sent, [refused], *_ = batch.marks()
    assert (sent, refused.seq, refused.refusal.code) == ([1, 3], 2, "too_large")


def test_messages_too_large_for_a_segment_only_together_all_arrive(
    stack: Stack, topic: Callable[..., str]
) -> None:
    """As where the brokers don't tell; and one that never fits is found among them."""
    name = topic(**{"max.message.bytes": str(8 * SEGMENT), "segment.bytes": str(SEGMENT)})
    sending = TopicSender(
        name,
        {"bootstrap.servers": stack.kafka, "batch.size": 8 * SEGMENT, "linger.ms": 500},
        limit=lambda *_: TopicLimit(8 * SEGMENT),
    )
    assert sending.open() is None
    rows = [row(n, b"%d" % n * (SEGMENT // 2)) for n in range(1, 7)]
    rows.insert(3, row(99, b"9" * (2 * SEGMENT), b"l"))
    batch = Batch(rows, sending.check)
    assert len(batch.to_send) == 7
    assert sending.send(batch, batch.to_send, 60) is None
    sending.close()
    sent, [refused], *_ = batch.marks()
    assert (sent, refused.seq, refused.refusal.code) == ([*range(1, 7)], 99, "too_large")
    found = [(m.headers() or [])[0][1] for m in messages(stack, name)]
    assert list(dict.fromkeys(found)) == [b"r%d" % n for n in range(1, 7)]


def test_many_that_are_refused_one_by_one_keep_no_other(
    stack: Stack, topic: Callable[..., str]
) -> None:
    """As those of a program whose clock is ahead. What was refused once goes apart from the start.

    With the few producers that there are: each costs its questions to the brokers.
    """
    name = topic(**{"message.timestamp.after.max.ms": "3600000"})
    made: list[Producer] = []

    def connect(properties: dict[str, Any], **options: Any) -> Producer:
        made.append(Producer(properties, **options))
        return made[-1]

    sending = TopicSender(name, {"bootstrap.servers": stack.kafka}, connect=connect)
    ahead = datetime.now(UTC) + timedelta(hours=2)
    rows = [row(n, key=b"%d" % n) for n in range(600)]
    rows = [one._replace(created_at=ahead) if one.seq % 3 else one for one in rows]
    good, bad = ([one.seq for one in rows if (one.seq % 3 > 0) is off] for off in (False, True))
    for failures in (0, 1):
        assert sending.open() is None
        tried = [one._replace(failures=failures if one.seq % 3 else 0) for one in rows]
        batch = Batch(tried, sending.check)
        assert sending.send(batch, batch.to_send, 10) is None
        marks = batch.marks()
        assert (marks.sent, marks.in_doubt) == (good, ())
        assert [one.seq for one in marks.refused] == bad
        assert {one.refusal.code for one in marks.refused} == {"clock_ahead"}
    assert len(made) == 2
    sending.close()
    assert len(messages(stack, name)) == 2 * len(good)


def test_a_topic_that_is_missing_is_named_and_not_asked_for_by_each_row(stack: Stack) -> None:
    sending = sender(stack, f"none-{uuid.uuid4().hex}")
    batch = Batch([row(1)], sending.check)
    sending.send(batch, batch.to_send, 20)
    [refused] = batch.marks().refused
    assert refused.refusal.code == "topic_missing"
    assert sending.check(row(2)) == refused.refusal
    sending.close()


def test_without_a_broker_nothing_is_said_of_a_row() -> None:
    away = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000}
    why = TopicSender("t", away).open()
    assert why is not None
    assert "no broker answers" in why
    sending = TopicSender("t", away, limit=lambda *_: TopicLimit())
    assert sending.open() is None
    batch = Batch([row(1), row(2)], sending.check)
    assert sending.send(batch, batch.to_send, 0.5) is not None
    assert batch.marks() == BatchMarks([], [], in_doubt=(1,))


def test_how_many_replicas_a_partition_needs_is_known(
    stack: Stack, topic: Callable[..., str]
) -> None:
    found = topic_limit(topic(**{"min.insync.replicas": "2"}), {"bootstrap.servers": stack.kafka})
    assert found.in_sync == 2
