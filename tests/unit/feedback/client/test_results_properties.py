"""What of a client's Kafka properties the consumers of results get."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from feedback.broker_probe import BrokerProbe
from feedback.client import result_consumer
from feedback.client.kafka_log import OutageLog
from feedback.outbox.relay import records


def test_a_membership_is_not_shared_with_the_callers_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        result_consumer, "Consumer", lambda properties, **_more: made.update(properties)
    )
    given = {
        "bootstrap.servers": "broker", "group.id": "theirs", "group.instance.id": "theirs-1",
        "group.protocol": "consumer", "client.id": "theirs", "transactional.id": "t",
        "on_delivery": print,
    }  # fmt: skip
    result_consumer.connect(BrokerProbe(result_consumer.properties(given, None)), OutageLog())
    assert made["bootstrap.servers"] == "broker"
    assert made["group.id"].startswith("oncepool-results-")
    relay: dict[str, Any] = {}
    monkeypatch.setattr(records, "Consumer", lambda properties, **_more: relay.update(properties))
    with contextlib.suppress(AttributeError):  # nothing is made that could be polled
        records.RecordSource("results", "ours", given).poll(0.0)
    assert relay["group.id"] == "ours"
    for consumer in (made, relay):
        theirs = {"group.instance.id", "group.protocol", "transactional.id", "on_delivery"}
        assert not theirs & set(consumer)
