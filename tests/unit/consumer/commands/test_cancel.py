"""What `oncepool requests cancel` says of what runs where it comes to no end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from consumer import cli
from consumer.commands import request_actions
from consumer.config.settings import Settings, variable
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import Moved, TransitionOutcome
from tests.support.cancelling import redis_goes
from tests.support.commands import answer

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ENVIRON = {
    "ONCEPOOL_DATABASE_URL": "postgresql:///nowhere",
    "ONCEPOOL_REDIS_URL": "redis://127.0.0.1:1",  # nobody is there
    "ONCEPOOL_WHO": "ann",
}


def moved(id: str) -> Moved:
    return Moved(
        id=id, type="a.b", from_state="waiting", state="cancelled", code="cancelled", attempt=1,
        run=1, at=NOW, fingerprint=None, own_fingerprint=False, result=None, error=None,
        reason=None, due_at=None, status_ttl=None, headers=None,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.setattr(request_actions, "connect", lambda _: nullcontext())


def test_redis_goes_after_some_were_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def cancel(_: Any, ids: Sequence[str], **__: Any) -> TransitionOutcome:
        asked.append(ids)
        waits = [moved("r1")] if len(asked) > 1 else []
        told = {one.id for one in waits}
        left = [Refusal(one, "running", "is running right now") for one in ids if one not in told]
        return TransitionOutcome(waits, left)

    redis_goes(monkeypatch, "r1", "r2")
    monkeypatch.setattr(request_actions.actions, "cancel", cancel)
    arguments = ["requests", "cancel", "r1", "r2", "r3", "--json"]
    result = CliRunner().invoke(cli.app, arguments, env=ENVIRON)

    told = answer(result)
    assert [row["id"] for row in told["moved"]] == ["r1"]
    reasons = {one["id"]: one["reason"] for one in told["refused"]}
    assert reasons.keys() == {"r2", "r3"}
    assert "Redis did not answer; look at it again" in reasons["r2"], "it may have been asked"
    assert result.exit_code == 5


def test_without_redis_what_is_refused_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = TransitionOutcome([], [Refusal("r1", "running", "is running right now")])
    monkeypatch.setattr(request_actions.actions, "cancel", lambda *_, **__: refused)
    arguments = ["requests", "cancel", "r1"]
    result = CliRunner().invoke(cli.app, arguments, env={**ENVIRON, "ONCEPOOL_REDIS_URL": ""})
    assert "r1: is running right now" in result.stderr
    assert result.exit_code == 6
