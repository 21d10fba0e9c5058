"""Brokers that refuse a client are not said to be away."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from consumer.admin import checks
from consumer.admin.checks import check_kafka
from consumer.admin.kafka_admin import BrokerAdmin, KafkaUnreachable, admin_client, metadata
from consumer.config.settings import Settings

NOBODY = Settings(kafka_bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_a_refusal_is_named_with_what_to_correct(code: int) -> None:
    client = admin_client(NOBODY)
    client._told(KafkaError(code, "SASL authentication error: wrong password"))
    client._told(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    with pytest.raises(KafkaUnreachable, match=r"wrong password; correct .* kafka_properties"):
        metadata(client, NOBODY, 0.1)


def test_who_is_away_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaUnreachable, match="no answer"):
        metadata(admin_client(NOBODY), NOBODY, 0.1)
    monkeypatch.setattr(checks, "metadata", lambda *given: metadata(*given, 0.1))
    (away,) = check_kafka(NOBODY)
    assert away.advice == "correct the address or start the broker"
    monkeypatch.setattr(BrokerAdmin, "refusal", "SSL handshake failed")
    (refused,) = check_kafka(NOBODY)
    assert "SSL handshake failed" in refused.detail
    assert refused.advice == "correct kafka_properties"
