"""What `oncepool limits show` says that instances may run now."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from consumer.admin.limits import described, said_of
from consumer.cli import app
from processing.cluster.limits import ClusterLimits, Setting, TypeLimit

TWO = [{"id": name, "types": ["t"], "at_once": {"t": 4}} for name in ("a", "b")]
UNSHARED = [{"id": "a", "types": ["t"]}, {"id": "b", "types": ["other"]}]


@pytest.mark.parametrize(
    "limit,live,may_run",
    [
        (TypeLimit(total=8), TWO, {"a": 4, "b": 4}),
        (TypeLimit(total=8, instance=1), TWO, {"a": 1, "b": 1}),
        (TypeLimit(total=8, paused=True), TWO, {"a": 0, "b": 0}),
        (TypeLimit(instance=3), UNSHARED, {"a": 3}),
        (TypeLimit(paused=True), UNSHARED, {"a": 0}),
    ],
)
def test_every_limit_counts(
    limit: TypeLimit, live: list[dict[str, Any]], may_run: dict[str, int]
) -> None:
    [shown] = described(ClusterLimits(types={"t": limit}), live)["types"]
    assert shown["at_once"] == may_run


@pytest.mark.parametrize(
    "written,hint",
    [("payment.craete", "; did you mean payment.create?"), ("mail", ""), ("payment.create", None)],
)
def test_a_type_that_nobody_has_a_handler_for_is_named(written: str, hint: str | None) -> None:
    live = [{"id": "a", "types": ["invoice.print"]}, {"id": "b", "types": ["payment.create"]}]
    applied = "2 live instance(s) apply it within 5 s: a, b"
    named = f"no live instance has a handler for {written!r}{hint}"
    changes = {Setting("paused", written): 1}
    said = said_of(changes, ClusterLimits(), live)
    assert said == [applied if hint is None else named], "nobody applies what nobody has"
    both = said_of({**changes, Setting("workers"): 2}, ClusterLimits(), live)
    assert both == [applied, *([] if hint is None else [named])]


@pytest.mark.parametrize("command", [["pause", "order.*"], ["set", "order.*", "--total", "3"]])
def test_a_pattern_is_no_type_to_limit(command: list[str]) -> None:
    environment = {"ONCEPOOL_REDIS_URL": "redis://127.0.0.1:1"}
    told = CliRunner().invoke(app, ["limits", *command], env=environment)
    assert told.exit_code == 2, told.output
    assert "a limit is for one type" in told.output
