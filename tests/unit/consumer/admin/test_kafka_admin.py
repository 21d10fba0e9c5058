"""What brokers answer to administration clients, in words of ours."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.admin import kafka_admin
from consumer.admin.kafka_admin import topic_retention
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
