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
    "milliseconds,kept",
    [
        ("604800000", timedelta(days=7)),
        ("0", timedelta(0)),
        ("-1", None),
        ("9223372036854775807", None),
    ],
)
def test_retention_longer_than_anybody_lives_is_for_ever(
    monkeypatch: pytest.MonkeyPatch, milliseconds: str, kept: timedelta | None
) -> None:
    def describe(resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        for answer in answers.values():
            answer.set_result({"retention.ms": SimpleNamespace(value=milliseconds)})
        return answers

    client = SimpleNamespace(describe_configs=describe)
    monkeypatch.setattr(kafka_admin, "admin_client", lambda _settings: client)

    assert topic_retention(Settings(kafka_topics=["t"])) == {"t": kept}


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
