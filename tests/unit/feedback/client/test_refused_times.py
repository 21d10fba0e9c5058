"""What a client says of a message whose time brokers do not take."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from feedback.client.delivery import _cause
from feedback.client.message import KafkaMessage

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
