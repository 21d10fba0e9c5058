"""Requests that run right now, as operators see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Commands, answer
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually


@pytest.fixture
def commands(bench: Bench) -> Commands:
    return Commands(bench.stack, bench.schema, bench.environment["ONCEPOOL_REDIS_PREFIX"])


def listed(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer(
        commands("requests", "list", "--state", "running", "--json", *arguments)
    )
    return rows


def test_what_runs_is_listed_with_its_place_and_is_not_unknown(
    bench: Bench, commands: Commands, tmp_path: Path
) -> None:
    bench.start()
    file = tmp_path / "began"
    slow = bench.client.submit("slow", {"seconds": 60, "file": str(file)}, request_id="slow-1")
    outside = bench.charging(tmp_path / "charged", 60)
    eventually(file.exists, WAIT)

    def both() -> list[dict[str, Any]]:
        rows = listed(commands)
        assert {row["id"] for row in rows if row["worker"] is not None} == {slow, outside}
        return rows

    rows = {row["id"]: row for row in eventually(both, WAIT)}

    (instance,) = bench.facts()
    assert {row["instance"] for row in rows.values()} == {instance["id"]}
    assert {row["worker"] for row in rows.values()} == {0, 1}
    assert (rows[slow]["type"], rows[slow]["state"]) == ("slow", "running")
    assert instance["started_at"] < rows[slow]["since"] <= instance["at"]
    assert [row["id"] for row in listed(commands, "--type", "sl*")] == [slow]
    assert listed(commands, "--type", "other") == []
    table = commands("requests", "list", "--state", "running").stdout
    assert slow in table
    assert instance["id"] in table
    for command in (("cancel", slow), ("retry", slow)):
        refused = commands("requests", *command)
        assert refused.exit_code == 6
        assert f"is running right now in worker {rows[slow]['worker']}" in refused.stderr
    assert "is running right now" in commands("requests", "show", slow).stderr
    assert commands("requests", "cancel", "nobody").exit_code == 4


def test_without_redis_the_journals_claims_are_listed(
    bench: Bench, commands: Commands, tmp_path: Path
) -> None:
    bench.start()
    outside = bench.charging(tmp_path / "charged", 60)

    done = commands("requests", "list", "--state", "running", "--json",
                    ONCEPOOL_REDIS_URL="redis://:hid@127.0.0.1:1/0")  # fmt: skip

    assert [(row["id"], row["worker"]) for row in answer(done)] == [(outside, None)]
    assert "what runs right now is in Redis" in done.stderr
    assert "hid" not in done.stderr
