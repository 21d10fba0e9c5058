"""An operator and a running service: what was moved runs, and its producer hears of it."""

from __future__ import annotations

from tests.support.commands import Commands, answer
from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually


def test_a_message_without_an_id_is_given_one_and_runs(bench: Bench, oncepool: Commands) -> None:
    bench.start(ONCEPOOL_WORKERS="1")
    payload = b'{"table": "%s"}' % bench.table.encode()
    Raw(bench).send("k", {"ce_type": b"effect"}, payload)
    listing = ("dead-letters", "list", "--json")
    (letter,) = eventually(lambda: answer(oncepool(*listing)), WAIT)

    result = oncepool("dead-letters", "retry", str(letter["id"]), "--id", "a")

    assert result.exit_code == 0, result.output
    assert bench.client.wait("a", WAIT).state == "done"
    assert bench.query(f"SELECT id FROM {bench.table}") == [("a",)]
    assert answer(oncepool(*listing)) == []


def test_what_waits_is_cancelled_and_what_is_cancelled_retried(
    bench: Bench, oncepool: Commands
) -> None:
    bench.start(ONCEPOOL_WORKERS="1")
    bench.client.submit("effect", {"table": bench.table}, request_id="a", delay=3600)
    assert bench.seen("a") == ("waiting", "delayed")

    assert oncepool("requests", "cancel", "a", "--why", "by mistake").exit_code == 0
    status = bench.client.wait("a", WAIT)
    assert (status.state, status.reason) == ("cancelled", "by mistake")
    assert oncepool("requests", "cancel", "a").exit_code == 6

    assert oncepool("requests", "retry", "a").exit_code == 0
    eventually(lambda: bench.client.wait("a", WAIT).state == "done", WAIT)
    assert bench.query(f"SELECT id FROM {bench.table}") == [("a",)]
    assert oncepool("requests", "retry", "a").exit_code == 6


def test_the_dead_are_retried_by_type_and_die_again(bench: Bench, oncepool: Commands) -> None:
    bench.start(ONCEPOOL_WORKERS="1")
    status = bench.outcome("dies", {}, request_id="a")
    assert (status.state, status.code) == ("dead", "worker_died")

    moved = answer(oncepool("requests", "retry", "--type", "di*", "--yes", "--json"))["moved"]
    assert [one["id"] for one in moved] == ["a"]

    def died_again() -> bool:
        found = bench.status("a")
        return found is not None and found.state == "dead" and found.run > moved[0]["run"]

    eventually(died_again, WAIT, lambda: bench.instances[0].log)
    (row,) = answer(oncepool("requests", "show", "a", "--json"))
    assert len(row["transitions"]) == 1
    assert sorted(attempt["run"] for attempt in row["attempts"]) == [1, 2, 4, 5], "each death"
    assert row["run"] == 5
    assert {attempt["code"] for attempt in row["attempts"]} == {"worker_died"}
    assert {attempt["error"] for attempt in row["attempts"]} == {
        "its worker died while it ran (exit code 3)"
    }
    assert all(attempt["started_at"] < attempt["ended_at"] for attempt in row["attempts"])


def test_a_doubt_that_was_resolved_is_told(bench: Bench, oncepool: Commands) -> None:
    bench.start(ONCEPOOL_WORKERS="1")
    assert bench.outcome("external_dies", {}, request_id="a").state == "in_doubt"

    command = ("requests", "resolve", "a", "--as", "done", "--result", '{"receipt": 9}')
    assert oncepool(*command).exit_code == 0

    status = bench.status("a")
    assert status is not None
    assert (status.state, status.code, status.result) == ("done", "resolved", {"receipt": 9})
    bench.client.submit("external_dies", {}, request_id="a")
    assert bench.client.wait("a", WAIT).result == {"receipt": 9}, "a resend is answered"
