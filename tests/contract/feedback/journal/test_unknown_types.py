"""Rows of types without a handler here, as an instance claims them beside those of its own."""

from __future__ import annotations

from feedback.journal.claims import ClaimRequest, ClaimResult, claim
from feedback.journal.unknown_types import UnknownTypes
from tests.support.claiming import ids
from tests.support.waiting_rows import WaitingRows

PATIENCE = 30.0


def take(rows: WaitingRows, order: int, unknown: UnknownTypes) -> ClaimResult:
    want = ClaimRequest(order, 10)
    return claim(rows.connection, "a", want, schema=rows.schema, known=["own"], unknown=unknown)


def test_what_is_overdue_for_some_time_is_taken_and_no_more(rows: WaitingRows) -> None:
    unknown = UnknownTypes(PATIENCE)
    rows.add("own", type="own")
    rows.add("late", type="theirs", due_in=-PATIENCE - 1)
    rows.add("due", type="theirs", due_in=-1)
    rows.add("other", type="others", due_in=-5)
    found = take(rows, 1, unknown)
    assert sorted(ids(found)) == ["late", "own"]
    assert found.due_in is not None
    assert 20 < found.due_in < 25, "nobody looks again and again for what may not be taken yet"
    assert ids(take(rows, 2, unknown)) == []


def test_types_of_which_another_instance_holds_a_claim_are_left_to_it(rows: WaitingRows) -> None:
    """However long the rest waits, as it is slow; between two of its claims there may be none."""
    now = 0.0
    unknown = UnknownTypes(PATIENCE, lambda: now)
    rows.add("late", type="theirs", due_in=-100)
    rows.add("held", type="theirs", token="b:1", due_in=50)
    rows.add("mine", type="strange", token="a:7", due_in=50)
    rows.add("strange", type="strange", due_in=-100)
    assert ids(take(rows, 1, unknown)) == ["strange"]
    rows.query(f"DELETE FROM {rows.schema}.requests WHERE id = 'held'")
    now = PATIENCE - 1
    assert ids(take(rows, 2, unknown)) == []
    now = PATIENCE
    assert ids(take(rows, 3, unknown)) == ["late"]
