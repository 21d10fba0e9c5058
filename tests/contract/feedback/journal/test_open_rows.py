"""What waits and what somebody has to look at, counted on a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from feedback.journal import open_rows as module
from feedback.journal.open_rows import OpenRows, open_rows
from tests.support.journal import Journal

EMPTY = [
    OpenRows("waiting", 0, None), OpenRows("due", 0, 0.0), OpenRows("in_doubt", 0, 0.0),
    OpenRows("dead", 0, 0.0), OpenRows("dead_letter", 0, 0.0),
]  # fmt: skip


def look(journal: Journal, most: int = 100) -> list[OpenRows] | None:
    return open_rows(journal.connection, schema=journal.schema, most=most)


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


def letter(journal: Journal, offset: int, **more: object) -> None:
    place = {"produced_at": ago(), "partition": 0, "topic": "t", "reason": "malformed"}
    journal.insert("dead_letters", kafka_offset=offset, **place, **more)


def fill(journal: Journal) -> None:
    journal.put("late", "waiting", due_at=ago(minutes=2))
    journal.put("later", "waiting", type="z", due_at=ago(minutes=5))
    journal.put("soon", "waiting", due_at=ago(minutes=-2))
    for n in (1, 2, 3):
        journal.put(f"dead-{n}", "dead", finished_at=ago(hours=n))
    journal.put("doubt", "in_doubt", effect="external", finished_at=ago(minutes=9))
    journal.put("done", "done")
    letter(journal, 1, at=ago(minutes=7))
    letter(journal, 2, at=ago(minutes=8), retried_at=ago())


def test_an_empty_journal_has_nothing_open(journal: Journal) -> None:
    assert look(journal) == EMPTY


def test_each_sort_is_counted_with_the_age_of_its_oldest(journal: Journal) -> None:
    fill(journal)
    found = {row.what: row for row in look(journal) or []}
    assert {what: row.number for what, row in found.items()} == {
        "waiting": 3, "due": 2, "in_doubt": 1, "dead": 3, "dead_letter": 1,
    }  # fmt: skip
    minutes = {"due": 5, "in_doubt": 9, "dead": 180, "dead_letter": 7}
    for what, least in minutes.items():
        oldest = found[what].oldest
        assert oldest is not None
        assert 60 * least <= oldest < 60 * least + 120


def test_counting_ends_at_the_bound_and_no_sort_hides_another(journal: Journal) -> None:
    fill(journal)
    journal.put("dead-4", "dead", finished_at=ago(hours=4))
    for n in range(4):
        journal.put(f"far-{n}", "waiting", type="a", due_at=ago(hours=-1))
    found = {row.what: row for row in look(journal, most=3) or []}
    assert {what: row.number for what, row in found.items()} == {
        "waiting": 3, "due": 2, "in_doubt": 1, "dead": 3, "dead_letter": 1,
    }  # fmt: skip
    assert 300 <= (found["due"].oldest or 0) < 420


def test_a_look_that_takes_too_long_is_given_up(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST", "50ms")
    with journal.holding("LOCK TABLE {s}.requests IN ACCESS EXCLUSIVE MODE"):
        assert look(journal) is None
    assert look(journal) == EMPTY
