"""Rows of topics that show no partitions yet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from consumer.admin import lag
from consumer.admin.lag import Lag, group_lag
from consumer.config.settings import Settings


def test_each_topic_that_is_there_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: SimpleNamespace(partitions={}) for name in ("a", "b", "other")}
    client = SimpleNamespace(list_topics=lambda _, timeout: SimpleNamespace(topics=known))
    monkeypatch.setattr(lag, "admin_client", lambda _settings: client)

    assert group_lag(Settings(kafka_topics=["b", "a", "gone"])) == [Lag("b", 0, 0), Lag("a", 0, 0)]
