"""What `oncepool requests resolve` asks of the journal."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from consumer import cli
from consumer.commands import request_actions

GIVEN = ["requests", "resolve", "--as", "failed"]


def test_a_resolution_is_of_the_run_that_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(request_actions, "_move", lambda *given, **_: asked.append(given))
    monkeypatch.setenv("ONCEPOOL_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    for more in (["a", "--run", "3"], ["a", "b"]):
        ended = CliRunner().invoke(cli.app, [*GIVEN, *more])
        assert ended.exit_code == 0, ended.output
    assert [given[3].keywords["runs"] for given in asked] == [{"a": 3}, None]
    refused = CliRunner().invoke(cli.app, [*GIVEN, "a", "b", "--run", "3"])
    assert refused.exit_code == 2
    assert len(asked) == 2
