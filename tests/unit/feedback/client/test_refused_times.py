"""What a client says of a message whose time brokers do not take."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from feedback import Client, DeliveryFailed
from feedback.client.delivery import _cause
from feedback.client.message import KafkaMessage
from tests.support.client import FakeProducer

REFUSED = KafkaError(KafkaError.INVALID_TIMESTAMP)


@pytest.mark.parametrize(
    "age,advice",
    [
        (0.0, "after.max.ms"),
        (-7200.0, "after.max.ms"),
        (300.0, "after.max.ms"),
        (7200.0, "before.max.ms"),
    ],
    ids=[
        "this clock is ahead",
        "another one is",
        "this one, at the last of many tries",
        "long ago",
    ],
)
def test_the_advice_is_for_its_side(age: float, advice: str) -> None:
    made = round((time.time() - age) * 1000)
    assert advice in _cause(KafkaMessage("requests", "r", b"k", b"{}", [], made), REFUSED)


def test_who_can_not_tell_names_both_sides() -> None:
    """A message of seconds ago: this clock may be ahead, or the topic takes none that old."""
    made = round((time.time() - 5) * 1000)
    said = _cause(KafkaMessage("requests", "r", b"k", b"{}", [], made), REFUSED)
    assert "after.max.ms" in said
    assert "before.max.ms" in said


def test_what_was_taken_once_with_its_time_is_too_old(
    client: Client, producer: FakeProducer
) -> None:
    client.submit("t", 1, request_id="a")
    client.flush()
    producer.error, producer.code = "refused", KafkaError.INVALID_TIMESTAMP
    client.submit("t", 1, request_id="a")
    with pytest.raises(DeliveryFailed) as caught:
        client.flush()
    [why] = caught.value.failures.values()
    assert "before.max.ms" in why
    assert "clock" not in why

    producer.error = None
    client.submit("t", 1, request_id="a")
    client.flush()
    assert len({sent["timestamp"] for sent in producer.sent}) == 1, "and stays the same message"
