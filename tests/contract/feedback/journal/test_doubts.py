"""Requests in doubt whose time to be asked about has come, on real PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest

from feedback.contract.states import MOST_LOST_CLAIMS
from feedback.journal.doubts import LONGEST_WAIT, doubts_to_ask
from stack import Stack
from tests.support.waiting_rows import WaitingRows

AFTER = 30.0


def doubt(rows: WaitingRows, name: str, age: float, *, kind: str = "t") -> None:
    rows.add(name, state="in_doubt", type=kind)
    rows.query(
        f"UPDATE {rows.schema}.requests SET due_at = NULL, token = 'made by',"
        f" finished_at = now() - make_interval(secs => {age}) WHERE id = '{name}'"
    )


def asked(rows: WaitingRows, *types: str, most: int = 10) -> list[str]:
    found = doubts_to_ask(rows.connection, types or ("t",), most, AFTER, schema=rows.schema)
    return sorted(row.id for row in found)


def again_in(rows: WaitingRows, name: str) -> float:
    [(seconds,)] = rows.query(
        f"SELECT extract(epoch FROM due_at - now())::float8 FROM {rows.schema}.requests"
        f" WHERE id = '{name}'"
    )
    return float(seconds)


def make_due(rows: WaitingRows) -> None:
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = now() WHERE due_at IS NOT NULL")


def test_those_are_taken_whose_time_has_come_and_each_time_they_double(rows: WaitingRows) -> None:
    doubt(rows, "new", 5)
    doubt(rows, "first", 31)
    doubt(rows, "older", 400)
    doubt(rows, "ancient", 10 * LONGEST_WAIT)
    doubt(rows, "another type", 400, kind="another")
    rows.add("done", state="done")
    rows.add("waits")
    assert asked(rows) == ["ancient", "first", "older"]
    for name, seconds in {"first": 31.0, "older": 400.0, "ancient": LONGEST_WAIT}.items():
        assert again_in(rows, name) == pytest.approx(seconds, abs=5)
    assert asked(rows) == [], "nobody asks for what somebody else is about to ask"
    assert asked(rows, "t", "another") == ["another type"]


def test_no_more_are_taken_than_are_wanted(rows: WaitingRows) -> None:
    for n in range(5):
        doubt(rows, f"r{n}", 100)
    taken = [asked(rows, most=2) for _ in range(4)]
    assert [len(names) for names in taken] == [2, 2, 1, 0]
    assert sorted(name for names in taken for name in names) == [f"r{n}" for n in range(5)]


def test_what_is_being_ended_is_left_out(rows: WaitingRows, stack: Stack) -> None:
    doubt(rows, "locked", 100)
    with psycopg.connect(stack.database) as other:
        other.execute(f"SELECT FROM {rows.schema}.requests WHERE id = 'locked' FOR UPDATE")
        assert asked(rows) == []


def test_what_nobody_comes_back_from_is_left_to_people(rows: WaitingRows) -> None:
    """Its check may be what ends the workers that ask."""
    doubt(rows, "kills", 100)
    for _ in range(MOST_LOST_CLAIMS):
        assert asked(rows) == ["kills"]
        make_due(rows)
    assert asked(rows) == []


def test_a_type_of_which_many_are_in_doubt_does_not_keep_the_others_waiting(
    rows: WaitingRows,
) -> None:
    """What its check takes may be long, and each of them comes again."""
    doubt(rows, "alone", 40, kind="z")
    for n in range(40):
        doubt(rows, f"many-{n}", 100, kind="a")
    taken = [asked(rows, "a", "z", most=1) for _ in range(40)]
    assert ["alone"] in taken
