"""What brokers answer to administration clients, in words of ours."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.admin import kafka_admin
from consumer.admin.kafka_admin import (
    BrokerAdmin,
    KafkaUnreachable,
    admin_client,
    create_topics,
    metadata,
    readable,
    require_topic,
    topic_retention,
)
from consumer.admin.since import parse_since
from consumer.config.settings import Settings


@pytest.mark.parametrize(
    "age,text",
    [
        (timedelta(days=7), "7d"),
        (timedelta(days=1, hours=12), "36h"),
        (timedelta(hours=20, minutes=30), "1230m"),
        (timedelta(seconds=61.2), "62s"),
        (timedelta(0), "0s"),
    ],
)
def test_an_age_is_said_as_a_command_takes_it(age: timedelta, text: str) -> None:
    assert readable(age) == text
    now = datetime.now(UTC)
    assert now - parse_since(text, now) - age < timedelta(seconds=1)


@pytest.mark.parametrize(
    "changes,longest,settings",
    [
        ({}, timedelta(days=7, hours=1), "retention.ms 7d + segment.ms 1h"),
        ({"retention.ms": "0"}, timedelta(hours=1), "retention.ms 0s + segment.ms 1h"),
        ({"retention.ms": "-1"}, None, "retention.ms -1"),
        ({"retention.ms": str(2**63 - 1)}, None, f"retention.ms {2**63 - 1}"),
        ({"segment.ms": str(2**63 - 1)}, None, f"segment.ms {2**63 - 1}"),
        ({"cleanup.policy": "compact"}, None, "cleanup.policy compact"),
        (
            {"cleanup.policy": "compact,delete"},
            timedelta(days=7, hours=1),
            "retention.ms 7d + segment.ms 1h",
        ),
    ],
)
def test_a_message_stays_until_the_newest_of_its_segment_is_too_old(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    longest: timedelta | None,
    settings: str,
) -> None:
    config = {"retention.ms": "604800000", "segment.ms": "3600000", "cleanup.policy": "delete"}

    def describe(resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        entries = {name: SimpleNamespace(value=value) for name, value in (config | changes).items()}
        for answer in answers.values():
            answer.set_result(entries)
        return answers

    client = SimpleNamespace(describe_configs=describe)
    monkeypatch.setattr(kafka_admin, "admin_client", lambda _settings: client)

    assert topic_retention(Settings(kafka_topics=["t"])) == {"t": (longest, settings)}


def test_a_command_without_a_broker_says_so_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and not listened to
        settings = Settings(kafka_bootstrap_servers=f"127.0.0.1:{nobody.getsockname()[1]}")
        with (
            caplog.at_level(logging.INFO),
            pytest.raises(KafkaUnreachable, match="no answer from 127"),
        ):
            metadata(admin_client(settings), settings, timeout=1.0)
    assert [record.getMessage() for record in caplog.records] == []


class LosesBrokers(BrokerAdmin):
    """Its brokers answer the first question, and are gone at the second."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1", "log_level": 3})
        self._answers = [SimpleNamespace(topics={})]

    def list_topics(self, *given: Any, **named: Any) -> Any:
        if self._answers:
            return self._answers.pop()
        return super().list_topics(*given, **(named | {"timeout": 0.1}))

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[None]]:
        answers: dict[str, Future[None]] = {topic.topic: Future() for topic in topics}
        there = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
        for answer in answers.values():
            answer.set_exception(there)
        return answers


def test_brokers_that_go_away_between_two_questions_are_said_to_be_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings(kafka_bootstrap_servers="127.0.0.1:1", kafka_topics=["t"])
    monkeypatch.setattr(kafka_admin, "admin_client", lambda _settings: LosesBrokers())
    with pytest.raises(KafkaUnreachable, match="no answer from 127"):
        require_topic(settings, "t")


def test_brokers_that_go_away_while_topics_are_made_are_said_to_be_away() -> None:
    settings = Settings(kafka_bootstrap_servers="127.0.0.1:1", kafka_topics=["t"])
    client = LosesBrokers()
    metadata(client, settings)
    with pytest.raises(KafkaUnreachable, match="no answer from 127"):
        create_topics(client, settings, {})
