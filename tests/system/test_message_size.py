"""Payloads of max_payload, on a real Kafka: what is sent, and what is said of what is not."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from consumer.gateway.problems import problem_of
from feedback import Client, DeliveryFailed
from feedback.errors import RequestTooLarge
from feedback.status.memory_store import MemoryStatusStore
from stack import Stack
from tests.support.commands import Commands
from tests.support.kafka_topic import read_all

MOST = 1024 * 1024


def payload(size: int) -> bytes:
    return b'"%b"' % (b"x" * (size - 2))


def client_of(stack: Stack, topic: str) -> Client:
    return Client(stack.kafka, MemoryStatusStore(), topic, hints=False)


def test_what_no_topic_takes_by_itself_is_said_to_be_too_large(
    stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic()
    with client_of(stack, name) as client:
        client.submit("t", payload(1_040_000), request_id="fits")
        client.flush(30)
        client.submit("t", payload(MOST), request_id="large")
        with pytest.raises(DeliveryFailed) as failed:
            client.flush(30)
    assert set(failed.value.failures) == {"large"}
    assert "raise max.message.bytes" in str(failed.value)
    assert f"topic {name!r}" in str(failed.value)
    answer = problem_of(failed.value, "large")
    assert (answer.status_code, answer.code) == (413, "too_large")
    assert [len(record[5] or b"") for record in read_all(stack.kafka, name)] == [1_040_000]


def test_more_than_the_producer_takes_is_not_sent(stack: Stack, topic: Callable[..., str]) -> None:
    with client_of(stack, topic()) as client, pytest.raises(RequestTooLarge) as refused:
        client.submit("t", payload(2 * MOST))
    assert isinstance(refused.value, ValueError)
    answer = problem_of(refused.value)
    assert (answer.status_code, answer.code) == (413, "too_large")
    assert "message.max.bytes" in answer.detail


def test_topics_are_made_for_payloads_of_that_size(stack: Stack, schema: str, prefix: str) -> None:
    name = f"sized-{uuid.uuid4()}"
    made = Commands(stack, schema, prefix)("topics", "create", ONCEPOOL_KAFKA_TOPICS=name)
    assert made.exit_code == 0, made.output
    with client_of(stack, name) as client:
        client.submit("t", payload(MOST))
        client.flush(30)
    assert [len(record[5] or b"") for record in read_all(stack.kafka, name)] == [MOST]
