"""Rows that were claimed: whose they are, and what a crash does to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from processing.ipc.frames import Suspect
from tests.support.queue import FAR, Queue


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
