"""Figures of the journal as a whole, on a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from feedback.journal.migrations import migrate
from feedback.operations.statistics import Figures, figures
from tests.support.database_clock import between
from tests.support.journal import Journal
from tests.support.own_database import OwnDatabase
from tests.support.waiting import eventually

NOW = datetime.now(UTC)


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


def look(journal: Journal) -> Figures:
    return figures(journal.connection, schema=journal.schema)


def count(journal: Journal, kind: str, state: str, code: str, n: int, at: datetime) -> None:
    minute = at.replace(second=0, microsecond=0)
    journal.insert("counters", minute=minute, type=kind, state=state, code=code, n=n)


def test_an_empty_journal(journal: Journal) -> None:
    assert look(journal) == Figures([], 0, 0, 0)


def test_what_waits_by_type_with_its_age_and_how_late_it_is(journal: Journal) -> None:
    made, due = ago(minutes=9), ago(minutes=2)
    journal.put("late", "waiting", created_at=made, due_at=due)
    journal.put("soon", "waiting", created_at=ago(minutes=3), due_at=ago(minutes=-2))
    journal.put("far", "waiting", type="z", created_at=NOW, due_at=ago(days=-2))
    journal.put("done", "done")

    with between(journal.connection) as asked:
        pay, other = look(journal).types

    assert (pay["type"], pay["waiting"], pay["due"]) == ("payment.create", 2, 1)
    assert asked.has_age(pay["oldest"], made)
    assert asked.has_age(pay["overdue"], due)
    assert (other["type"], other["waiting"], other["due"]) == ("z", 1, 0)
    assert other["overdue"] == 0
    assert other["done_day"] == 0


def test_what_somebody_has_to_look_at(journal: Journal) -> None:
    for n in range(3):
        journal.put(f"dead-{n}", "dead")
    doubted, called = ago(minutes=9), ago(minutes=3)
    journal.put("doubt", "in_doubt", effect="external", created_at=doubted)
    journal.put("called", "running", effect="external", created_at=called)
    place = {"produced_at": NOW, "partition": 0, "topic": "t", "reason": "malformed"}
    journal.insert("dead_letters", kafka_offset=1, **place)
    journal.insert("dead_letters", kafka_offset=2, retried_at=NOW, **place)

    with between(journal.connection) as asked:
        found = look(journal)

    assert (found.dead, found.in_doubt, found.messages) == (3, 1, 1)
    assert asked.has_age(found.oldest_open or 0, doubted)
    journal.run("DELETE FROM {s}.requests WHERE state = 'in_doubt'")
    with between(journal.connection) as asked:
        found = look(journal)
    assert asked.has_age(found.oldest_open or 0, called)


def test_what_ended_by_type_and_how_fast(journal: Journal) -> None:
    count(journal, "a", "done", "ok", 60, ago(minutes=1))
    count(journal, "a", "rejected", "no_funds", 60, ago(minutes=1))
    count(journal, "a", "done", "duplicate", 600, ago(minutes=1))
    count(journal, "a", "waiting", "retry", 600, ago(minutes=1))
    count(journal, "a", "done", "ok", 7, ago(hours=3))
    count(journal, "a", "done", "ok", 1000, ago(hours=25))
    count(journal, "a", "lost", "at_commit", 4, ago(hours=5))
    count(journal, "b", "failed", "handler_error", 1, ago(hours=2))

    a, b = look(journal).types

    assert (a["done_hour"], a["done_day"], a["lost"]) == (60, 67, 4)
    # 120 within the last minute and what has passed of this one; a slow test may fall beyond it.
    assert a["rate"] == 0 or 1.0 <= a["rate"] <= 2.0
    assert (b["done_hour"], b["done_day"], b["rate"]) == (0, 0, 0)
    assert b["oldest"] is None


def test_many_rows_that_wait_are_counted_from_the_index(own_database: OwnDatabase) -> None:
    """In a database of its own: VACUUM looks at the transactions of others that are older."""
    migrate(own_database.url, "oncepool")
    journal = Journal(own_database.url, "oncepool")
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, due_at) SELECT 'r' || n, 't', 'waiting', 'delayed', 'transaction', 't', 0,"
        " n, now(), now() + interval '1 day' FROM generate_series(1, 20000) AS n"
    )

    def planned() -> list[str]:
        journal.run("VACUUM ANALYZE {s}.requests")
        plan = journal.rows(
            "EXPLAIN SELECT type, count(*), min(created_at), min(due_at) FROM {s}.requests"
            " WHERE state = 'waiting' GROUP BY type"
        )
        return [row["QUERY PLAN"] for row in plan]

    eventually(
        lambda: "Index Only Scan" in "".join(planned()), message=lambda: "\n".join(planned())
    )
    assert look(journal).types[0]["waiting"] == 20000
    journal.close()
