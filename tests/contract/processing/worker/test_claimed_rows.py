"""Rows that were claimed: whose they are, and what a crash does to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.contract.lost_starts import END_UNKNOWN
from feedback.contract.record import read_again
from feedback.journal.migrations import migrate
from feedback.operations.request_actions import By, retry
from processing import App
from processing.ipc.frames import Report, Suspect
from processing.worker import bad_luck
from tests.support.executor import chunk_run
from tests.support.own_database import OwnDatabase
from tests.support.queue import FAR, INSTANCE, Queue, queue_app


def test_a_claim_of_somebody_else_is_left_alone(queue: Queue, ran: list[Any]) -> None:
    queue.run(queue.record("a", "once", {}, ce_notbefore=FAR))
    (record,) = queue.claimed("a")
    queue.query(f"UPDATE {queue.schema}.requests SET token = 'other:1'")
    report = queue.run(record)
    assert (ran, queue.row("a")["state"], report.returned) == ([], "waiting", [])
    queue.query(f"UPDATE {queue.schema}.requests SET token = NULL, state = 'cancelled'")
    queue.run(record)
    assert ran == []
    queue.query(f"DELETE FROM {queue.schema}.requests")
    queue.query(f"DELETE FROM {queue.schema}.moves")
    queue.run(record)
    assert ran == [], "without a row there is no claim"


def test_a_suspect_claim_runs_again_and_its_second_crash_kills_it(
    queue: Queue, ran: list[Any]
) -> None:
    queue.run(*(queue.record(n, "once", {}, ce_notbefore=FAR) for n in ("a", "b", "c")))
    first, second, third = queue.claimed("a", "b", "c")
    queue.run(first, suspect=Suspect(None, (), ("x",), 1))
    assert (queue.row("a")["state"], queue.row("a")["crashes"]) == ("done", 1)
    queue.run(second, suspect=Suspect("worker_died", (), ("x",), 2))
    row = queue.row("b")
    assert (row["state"], row["code"], row["crashes"]) == ("dead", "worker_died", 2)
    queue.run(third, suspect=Suspect("timeout", (), ("x",), 1))
    assert queue.rows()["c"] == ("failed", "timeout")
    queue.run(first, suspect=Suspect("worker_died", (), ("x",), 2))
    assert queue.row("a")["state"] == "done", "what it had committed stays"


@pytest.mark.parametrize("kind", ["once", "pay", "call"])
def test_each_crash_of_a_row_is_a_run_and_a_line_of_its_timeline(
    queue: Queue, ran: list[Any], kind: str
) -> None:
    """As those of a message are, also after an operator's retry, which counts crashes anew."""
    deaths = Suspect(None, (), ("x",), 2, losses=((1.0, 2.0, "signal SIGKILL"),) * 2)
    queue.run(*(queue.record(name, kind, {}, ce_notbefore=FAR) for name in ("a", "b")))
    once, twice = queue.claimed("a", "b")
    queue.run(once, suspect=deaths._replace(crashes=1, losses=deaths.losses[:1]))
    queue.run(twice, suspect=deaths)
    row, told = queue.row("a"), queue.told("a")
    assert (row["state"], row["run"], row["attempt"], row["crashes"]) == ("done", 2, 1, 1)
    assert (told["state"], told["v"][:5], ran) == ("done", "00002", [("a", 1)])
    row, told = queue.row("b"), queue.told("b")
    assert (row["state"], row["code"], row["run"], row["crashes"]) == ("dead", "worker_died", 2, 2)
    assert told["v"][:5] == "00002"
    died = [(1, "worker_died"), (2, "worker_died")]
    assert (queue.timeline("a"), queue.timeline("b")) == (died[:1], died)
    with psycopg.connect(queue.url, autocommit=True) as connection:
        retry(connection, ["b"], By("ann"), schema=queue.schema)
    queue.run(*queue.claimed("b"), suspect=deaths)
    assert (queue.row("b")["state"], queue.row("b")["run"]) == ("dead", 5)
    assert queue.timeline("b") == [*died, (4, "worker_died"), (5, "worker_died")]


def test_the_claim_of_a_call_says_that_an_earlier_start_crashed(
    queue: Queue, ran: list[Any], answers: dict[str, Any]
) -> None:
    """Whoever finds it, once its worker or instance has died in the call, cannot know."""
    queue.run(queue.record("a", "call", {}, ce_notbefore=FAR))
    found: list[Any] = []
    answers["a"] = lambda: found.extend([queue.row("a")["run"], *queue.timeline("a")])
    losses = ((1.0, 2.0, "signal SIGKILL"), (3.0, 4.0, "exit code 9"))
    (record,) = queue.claimed("a")
    queue.run(record, suspect=Suspect(None, (), ("x",), 1, losses=losses[:1]))
    assert found == [2, (1, "worker_died")]
    # Its worker dies before it has written the end.
    token = f"token-{queue.number}"
    queue.query(
        f"UPDATE {queue.schema}.requests SET state = 'running', token = '{token}', used = 0"
    )
    queue.query(f"DELETE FROM {queue.schema}.moves")
    queue.run(record, suspect=Suspect("worker_died", (), ("x", token), 2, losses=losses))
    row = queue.row("a")
    assert (row["state"], row["run"], row["crashes"]) == ("in_doubt", 2, 2)
    assert queue.timeline("a") == [(1, "worker_died"), (2, "worker_died")]


def test_a_timeout_is_an_attempt_and_a_kill_at_shutdown_is_none(queue: Queue) -> None:
    record = queue.record("a", "pay", {})
    queue.run(record, suspect=Suspect("timeout", (), ("x",), 1))
    row = queue.row("a")
    assert (row["state"], row["code"], row["used"]) == ("waiting", "timeout", 1)
    (again,) = queue.claimed("a")
    queue.run(again, suspect=Suspect("shutdown", (), ("x",), 0))
    row = queue.row("a")
    assert (row["state"], row["code"], row["used"], row["token"]) == ("waiting", "parked", 1, None)
    assert row["due_at"] <= datetime.now(UTC) + timedelta(seconds=1)
    queue.run(queue.record("b", "pay", {}), suspect=Suspect("shutdown", (), ("x",), 0))
    assert queue.rows()["b"] == ("waiting", "parked")


def test_a_lease_that_is_renewed_meanwhile_does_not_have_the_chunk_redone(
    queue: Queue, ran: list[Any], answers: dict[str, Any]
) -> None:
    queue.run(queue.record("a", "renewed", {}, ce_notbefore=FAR))
    (record,) = queue.claimed("a")
    with psycopg.connect(queue.url) as claimer:
        answers["claimer"] = claimer
        queue.run(record)
    assert (queue.row("a")["state"], [name for name, _ in ran]) == ("done", ["a"])


@pytest.mark.parametrize("kind", ["unique", "reckoned"])
def test_a_row_that_was_lost_with_its_owner_is_not_entered_again_where_it_must_not_be(
    queue: Queue, ran: list[Any], kind: str
) -> None:
    """Whoever had it may have run it. What was given back was not begun, and runs."""
    queue.run(*(queue.record(name, kind, {}, ce_notbefore=FAR) for name in ("a", "b")))
    queue.claimed("a", "b")
    queue.query(
        f"UPDATE {queue.schema}.requests SET token = NULL, lease_until = NULL WHERE id = 'b'"
    )
    lost, given_back = queue.claimed("a", "b")
    queue.run(lost, given_back)
    assert [name for name, _ in ran] == ["b"]
    row = queue.row("a")
    told = queue.told("a")
    if kind == "unique":
        assert (row["state"], row["code"], row["run"]) == ("failed", "instance_died", 2)
        assert queue.timeline("a") == [(2, "instance_died")]
    else:
        assert row == {}
    assert (told["state"], told["code"], told["v"]) == ("failed", "instance_died", "000024")
    # Sent again it runs: that is its producer's decision.
    queue.run(queue.record("a", kind, {}))
    assert [name for name, _ in ran] == ["b", "a"]
    assert queue.told("a")["state"] == "done"


def test_what_was_computed_is_not_entered_again_while_its_row_stays_locked(
    queue: Queue, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody looks at it in a transaction of their own, for longer than anybody waits."""
    monkeypatch.setattr(bad_luck, "LONGEST_REDO", 0.0)
    queue.executor.close()
    queue.executor = queue.another(queue.url, instance=INSTANCE, lock_timeout=0.02)
    queue.run(queue.record("a", "reckoned", {}, ce_notbefore=FAR))
    records = queue.claimed("a")
    with psycopg.connect(queue.url) as somebody:
        somebody.execute(f"SELECT FROM {queue.schema}.requests FOR UPDATE".encode())
        first = queue.run(*records)
        came_back(queue, records, first)
        assert ran == [("a", 1)]
        assert queue.row("a")["state"] == "waiting"
    assert (first.alone, first.database_up) == ([0], True)
    assert first.held_up is not None
    assert first.held_up[0] > 0
    came_back(queue, records, first)
    assert (ran, queue.row("a")) == ([("a", 1)], {})
    told = queue.told("a")
    assert (told["state"], told["code"]) == ("failed", "worker_died")
    assert told["reason"] == END_UNKNOWN, "no worker has died"
    queue.run(queue.record("a", "reckoned", {}))
    assert (ran, queue.told("a")["state"]) == ([("a", 1)] * 2, "done")


def test_what_was_computed_is_not_entered_again_after_an_outage(
    own_database: OwnDatabase, answers: dict[str, Any], ran: list[Any]
) -> None:
    """The database takes no writes any more when its row is to go."""
    migrate(own_database.url, "oncepool")
    queue = Queue(queue_app("oncepool", answers, ran), own_database.url, "oncepool")
    queue.run(queue.record("a", "reckoned", {}, ce_notbefore=FAR))
    records = queue.claimed("a")
    own_database.set_read_only(read_only=True)
    report = queue.run(*records)
    assert (ran, report.database_up) == ([("a", 1)], False)
    own_database.set_read_only(read_only=False)
    came_back(queue, records, report)
    queue.executor.close()
    queue.app.stop_worker()
    assert (ran, queue.told("a")["state"]) == ([("a", 1)], "failed")


def came_back(queue: Queue, records: list[Any], report: Report) -> None:
    """What a report gave back runs once more, as the pool has it."""
    for index in report.returned:
        queue.run(records[index])
    for index in report.unclear:
        queue.run(records[index], suspect=Suspect(None, (), ()))


def test_a_version_that_does_not_know_the_type_keeps_that_it_may_have_been_begun(
    queue: Queue, ran: list[Any]
) -> None:
    """A message that is read again, and rows: what was lost, what was given back."""
    queue.run(*(queue.record(name, "unique", {}, ce_notbefore=FAR) for name in ("c", "d")))
    queue.claimed("c")
    newer, newest = queue.app, queue.executor
    queue.app = App()
    queue.app.handler("other")(lambda payload: None)
    queue.app.start_worker()
    queue.executor = queue.another(queue.url)
    queue.run(
        read_again(queue.record("a", "unique", {})),
        read_again(queue.record("b", "unique", {}), begun=False),
        *queue.claimed("c", "d"),
    )
    assert set(queue.rows().values()) == {("waiting", "unknown_type")}
    queue.again("a", "b", "c", "d")
    queue.executor.close()
    queue.app.stop_worker()
    queue.app, queue.executor = newer, newest
    queue.again("a", "b", "c", "d")
    assert sorted(name for name, _ in ran) == ["b", "d"]
    refused = ("failed", "instance_died")
    assert (queue.rows()["a"], queue.rows()["c"]) == (refused, refused)


def test_an_owner_that_is_not_lost_after_all_enters_nothing_anew(
    queue: Queue, ran: list[Any], answers: dict[str, Any]
) -> None:
    """Its lease ran out while the handler ran, and another one has ended the row."""
    queue.run(queue.record("a", "unique", {}, ce_notbefore=FAR))
    (late,) = queue.claimed("a")
    answers["a"] = lambda: queue.another(queue.url).begin(
        chunk_run(queue.claimed("a"), 99, "another")
    )
    queue.run(late)
    assert [name for name, _ in ran] == ["a"]
    assert (queue.rows()["a"], queue.query(f"SELECT * FROM {queue.schema}.effects")) == (
        ("failed", "instance_died"),
        [],
    )
