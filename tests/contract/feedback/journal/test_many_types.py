"""Claims where very many types wait, on real PostgreSQL: anybody can make up types."""

from __future__ import annotations

import pytest

from feedback.contract.record import claim_of
from feedback.journal.claims import LONGEST_WALK, claims_of
from tests.support.claiming import ids, take
from tests.support.waiting_rows import WaitingRows


def test_a_type_behind_thousands_of_others_comes_round(rows: WaitingRows) -> None:
    rows.add_types(2500)
    rows.add("last", due_in=-3600, type="zz.real")
    first = take(rows)
    assert (ids(first), first.after) == ([], "made.up.2000")
    second = take(rows, order=2, after=first.after)
    assert ids(second) == ["last"]
    # It came to the end, and went on from the beginning for as many as were left of its bound.
    assert second.after == "made.up.1499"
    rows.add("first", type="a.real")
    assert ids(take(rows, order=3, after="made.up.2400")) == ["first"]


def test_a_walk_that_comes_to_the_end_of_few_types_begins_anew(rows: WaitingRows) -> None:
    rows.add("a", type="a")
    rows.add("b", type="b", due_in=30)
    rows.add("c", type="c", due_in=-3600)
    for order, after in enumerate(("", "b", "c", "gone"), 1):
        haul = take(rows, order=order, after=after)
        assert (ids(haul), haul.after) == (["c", "a"], "")
        assert haul.due_in == pytest.approx(30, abs=3)
        rows.query(f"UPDATE {rows.schema}.requests SET due_at = not_before, token = NULL")


def test_known_types_are_looked_at_however_many_others_wait(rows: WaitingRows) -> None:
    rows.add_types(4500)
    rows.add("due", type="zz.due")
    rows.add("soon", type="zz.soon", due_in=30)
    known = ("zz.due", "zz.soon", "zz.none")
    haul = take(rows, known=known)
    assert (ids(haul), haul.after) == (["due"], "made.up.2000")
    assert haul.due_in == pytest.approx(30, abs=3)


def test_rows_of_known_types_go_before_those_of_thousands_of_others(rows: WaitingRows) -> None:
    rows.add_types(2500, due_in=-60)
    rows.add("first", "second", "third", type="zz.real")
    rows.add("other", type="zz.other")
    haul = take(rows, 6, known=("zz.real", "zz.other"))
    assert {"first", "second", "third", "other"} < set(ids(haul))
    assert len(ids(haul)) == 6, "the others have what is left"


def test_where_few_types_wait_known_ones_have_their_share_and_no_more(rows: WaitingRows) -> None:
    rows.add("a1", "a2", "a3", type="a")
    rows.add("b1", "b2", type="b")
    assert sorted(ids(take(rows, 4, known=("a",)))) == ["a1", "a2", "b1", "b2"]


def test_an_instance_finds_its_claims_of_some_types_at_a_time(rows: WaitingRows) -> None:
    rows.add("a", type="a")
    rows.add("z", type="zz.real")
    took = {claim_of(row.record) for row in take(rows).rows}
    rows.add_types(LONGEST_WALK + 100)
    found, after = claims_of(rows.connection, "a", 10.0, 0.0, schema=rows.schema)
    assert (found, after) == ({("a", 1)}, "made.up.1999")
    more, after = claims_of(rows.connection, "a", 10.0, 0.0, schema=rows.schema, after=after)
    assert (found | more, after) == (took, "")
