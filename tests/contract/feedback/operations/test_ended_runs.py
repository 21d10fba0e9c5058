"""Who ended what ran: it is kept once, however often somebody asks for it at once."""

from __future__ import annotations

from typing import Any

from feedback.operations.operator_changes import note_ended_runs
from feedback.operations.request_actions import By
from tests.support.journal import Journal

BY = By("ann", "too slow")


def ended(id: str, run: int) -> dict[str, Any]:
    return {"id": id, "run": run, "from_state": "running", "state": "cancelled"}


def noted(journal: Journal) -> list[tuple[Any, ...]]:
    rows = journal.rows("SELECT request_id, run, who FROM {s}.transitions ORDER BY request_id, run")
    return [tuple(row.values()) for row in rows]


def test_a_run_is_ended_once(journal: Journal) -> None:
    c, schema = journal.connection, journal.schema
    note_ended_runs(c, [ended("a", 1)], BY, schema=schema)
    note_ended_runs(c, [ended("a", 1), ended("a", 2), ended("b", 1)], BY, schema=schema)
    assert noted(journal) == [("a", 1, "ann"), ("a", 2, "ann"), ("b", 1, "ann")]


def test_a_move_of_what_waited_does_not_count(journal: Journal) -> None:
    journal.insert("transitions", run=1, request_id="a", action="cancel", from_state="waiting",
                   to_state="cancelled", who="bob")  # fmt: skip
    note_ended_runs(journal.connection, [ended("a", 1)], BY, schema=journal.schema)
    assert sorted(noted(journal)) == [("a", 1, "ann"), ("a", 1, "bob")]


def test_those_who_note_it_at_once_wait_for_each_other(journal: Journal) -> None:
    schema = journal.schema
    with journal.connection.transaction():
        note_ended_runs(journal.connection, [ended("a", 1)], BY, schema=schema)
        rival = journal.rival(lambda c: note_ended_runs(c, [ended("a", 1)], BY, schema=schema))
    rival.result()
    assert noted(journal) == [("a", 1, "ann")]
