"""Addresses of Kafka brokers, as the client library takes them."""

from __future__ import annotations

import pytest

from feedback.broker_addresses import check_servers
from feedback.client.producer import connect
from feedback.errors import ConfigurationError


@pytest.mark.parametrize(
    "text",
    [
        "kafka", "kafka:9092", "kafka-1:9092, kafka-2.example.com:9093", "10.0.0.1:1", "[::1]:9092",
        "[fe80::1]", "::1", "SSL://kafka:9092", "sasl_ssl://kafka", "k_1:65535", "kafka:9092,",
    ],
)  # fmt: skip
def test_what_names_servers_is_taken(text: str) -> None:
    check_servers(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://kafka:9092", ":9092", "a;b", "a:1;b:2", "kafka:", "kafka:0", "kafka:65536",
        "kafka:port", "kafka:9092/topic", "a b", ",", "user@kafka:1", "[kafka]:9092", "ok:1,:2",
        "::1]:9092", "SSL://",
    ],
)  # fmt: skip
def test_what_can_name_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        check_servers(text)
    with pytest.raises(ConfigurationError, match="host:port"):
        connect(text, 1.0)
    with pytest.raises(ConfigurationError, match="host:port"):
        connect({"metadata.broker.list": text}, 1.0)
