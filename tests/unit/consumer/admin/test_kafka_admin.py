"""What brokers answer to administration clients, in words of ours."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.admin import kafka_admin
from consumer.admin.kafka_admin import KafkaUnreachable, admin_client, metadata, topic_retention
from consumer.config.settings import Settings


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
