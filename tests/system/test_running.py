"""Requests that run right now, as operators see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Commands, answer
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

NOWHERE = "redis://127.0.0.1:1"


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

    away = commands("requests", "list", "--state", "running", ONCEPOOL_REDIS_URL=NOWHERE)
    assert away.exit_code == 1, "that nothing runs is not said where nobody knows"
    assert "warning" in away.stderr

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
    refused = commands("requests", "retry", slow)
    assert refused.exit_code == 6
    assert f"is running right now in worker {rows[slow]['worker']}" in refused.stderr
    assert "is running right now" in commands("requests", "show", slow).stderr
    assert commands("requests", "cancel", "nobody").exit_code == 4

    # Both are killed; of the one nothing is left, of the other nobody knows.
    cancelled = commands("requests", "cancel", slow, outside, "--why", "too slow", "--json")
    assert cancelled.exit_code == 0, cancelled.output
    moved = {row["id"]: (row["state"], row["code"]) for row in answer(cancelled)["moved"]}
    assert moved == {slow: ("cancelled", "cancelled"), outside: ("in_doubt", "cancelled")}
    assert "requests resolve" in cancelled.stderr
    status = bench.client.wait(slow, WAIT)
    assert (status.state, status.reason) == ("cancelled", "cancelled by ann: too slow")
    (row,) = answer(commands("requests", "show", slow, "--json"))
    assert [(run["code"], run["error"]) for run in row["attempts"]] == [
        ("cancelled", status.reason)
    ]
    again = bench.client.call("slow", {"seconds": 60, "file": str(file)}, request_id=slow,
                              timeout=WAIT)  # fmt: skip
    assert again.state == "cancelled", "a resend does not run it"
    assert commands("requests", "cancel", slow).exit_code == 6


def test_what_is_cancelled_leaves_nothing_and_hits_no_other(
    bench: Bench, commands: Commands, tmp_path: Path
) -> None:
    instance = bench.start(ONCEPOOL_WORKERS="4")
    payloads: dict[str, tuple[str, dict[str, Any]]] = {
        "computes": ("computes", {}),
        "gives-up": ("heeds", {"then": "give up"}),
        "ends": ("heeds", {"then": "end"}),
        "checked": ("checked", {"seconds": 25}),
    }
    for name, (kind, payload) in payloads.items():
        told = {**payload, "table": bench.table, "file": str(tmp_path / name)}
        bench.client.submit(kind, told, request_id=name)
    for name in payloads:
        eventually((tmp_path / name).exists, WAIT, lambda: instance.log)
    eventually(lambda: len(listed(commands)) == len(payloads), WAIT)
    before = set(instance.workers())
    others = [bench.client.submit("effect", {"table": bench.table}) for _ in range(20)]

    done = commands("requests", "cancel", *payloads, "--json")

    found = answer(done)
    assert done.exit_code == 6, done.output
    assert {(row["id"], row["state"], row["code"]) for row in found["moved"]} == {
        ("computes", "cancelled", "cancelled"),
        ("gives-up", "cancelled", "cancelled"),
    }
    # One came to its end when it was told, of one its check has found out that it had happened.
    assert {(one["id"], one["state"]) for one in found["refused"]} == {
        ("ends", "done"),
        ("checked", "done"),
    }
    assert {bench.client.wait(name, WAIT).state for name in others} == {"done"}
    effects = {name for (name,) in bench.query(f"SELECT id FROM {bench.table}")}
    assert effects == {"ends", *others}
    eventually(lambda: len(instance.workers()) == 4, WAIT)
    assert len(before - set(instance.workers())) == 2, "only those that did not heed were killed"


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
