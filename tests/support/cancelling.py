"""Redis that is gone as soon as an instance is to be asked to cancel what it runs."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from consumer.admin import cancelling, moving

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class NobodyAsked:
    """Asks nobody."""

    def __init__(self, *_: Any) -> None: ...

    def ask(self, *_: str) -> bool:
        raise redis.ConnectionError("Connection refused")

    def withdraw(self, *_: str) -> bool:
        raise redis.ConnectionError("Connection refused")


def redis_goes(monkeypatch: pytest.MonkeyPatch, *running: str) -> None:
    """These run, as Redis says at first; it has no status of them."""
    rows = [
        {"request_id": one, "type": "a.b", "instance": "i1", "worker": 1, "since": NOW.isoformat()}
        for one in running
    ]
    monkeypatch.setattr(moving, "running_now", lambda _: rows)
    monkeypatch.setattr(cancelling, "look_up", lambda _, ids: [None for _ in ids])
    monkeypatch.setattr(cancelling, "connect", lambda _: nullcontext())
    monkeypatch.setattr(cancelling, "Cancellations", NobodyAsked)
