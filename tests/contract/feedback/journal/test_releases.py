"""Claims given back, on real PostgreSQL."""

from __future__ import annotations

import threading

import psycopg
import pytest

from feedback.contract.record import claim_of
from feedback.journal.claims import (
    ClaimRequest,
    claim,
)
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.connections import due_channel
from feedback.journal.open_rows import open_rows
from feedback.journal.releases import ReturnMarks, release
from tests.support.claiming import ComesBefore, ids, reference, take
from tests.support.waiting_rows import WaitingRows


def given_back(rows: WaitingRows, *claims: tuple[str, int]) -> list[Superseded]:
    """What gave way to others meanwhile."""
    lost: list[Superseded] = []
    commits = Commits(lost.extend)
    assert release(rows.connection, "a", claims, schema=rows.schema, commits=commits) == []
    return lost


def test_what_is_given_back_is_due_at_once_and_counts_no_crash(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    other.execute(f'LISTEN "{due_channel(rows.schema)}"'.encode())
    rows.add("x", "y", "other's")
    take(rows)
    rows.query(f"UPDATE {rows.schema}.requests SET token = 'b:1' WHERE id = 'other''s'")
    pairs = [("x", 1), ("y", 1), ("other's", 1)]
    assert release(rows.connection, "a", pairs, schema=rows.schema) == []
    assert rows.columns("x", "token", "lease_until") == (None, None)
    assert [n.channel for n in other.notifies(timeout=60, stop_after=1)] == [
        due_channel(rows.schema)
    ]
    assert sorted(ids(take(rows, order=2))) == ["x", "y"]
    assert rows.columns("x", "run", "crashes") == (2, 0)


def test_what_a_stop_leaves_keeps_its_place_and_its_age(rows: WaitingRows) -> None:
    rows.add("first", "second", due_in=-600.0)
    rows.add("parked", due_in=-500.0)
    rows.add("others", due_in=-60.0)
    rows.query(f"UPDATE {rows.schema}.requests SET created_at = due_at")
    rows.query(f"UPDATE {rows.schema}.requests SET not_before = NULL WHERE id = 'parked'")
    take(rows, most=3)
    left = ["first", "second", "parked"]
    release(
        rows.connection,
        "a",
        [(i, 1) for i in left],
        schema=rows.schema,
        marks=ReturnMarks(in_place=left),
    )
    assert rows.columns("first", "due_at = not_before") == (True,)
    assert rows.columns("parked", "due_at = created_at") == (True,)
    found = open_rows(rows.connection, schema=rows.schema, most=10) or []
    assert {one.what: (one.oldest or 0) >= 600 for one in found}["due"]
    assert ids(take(rows, most=3, order=2)) == left


def test_what_this_instance_may_claim_again_goes_behind_what_is_due(rows: WaitingRows) -> None:
    """Else what cannot run here for now, or takes the database away, keeps all others out."""
    rows.add("x", due_in=-600.0)
    take(rows)
    rows.add("y", due_in=-60.0)
    release(rows.connection, "a", [("x", 1)], schema=rows.schema)
    assert ids(take(rows, most=1, order=2)) == ["y"]


def test_what_may_have_been_begun_stays_known_to_be_so(rows: WaitingRows) -> None:
    rows.add("x", "y")
    for order in (1, 2):
        take(rows, order=order)
        both = [("x", order), ("y", order)]
        release(rows.connection, "a", both, schema=rows.schema, marks=ReturnMarks(begun=["x"]))
        assert (rows.columns("x", "lost_claims"), rows.columns("y", "lost_claims")) == ((1,), (0,))


def test_given_back_before_its_time_it_waits_for_it(rows: WaitingRows) -> None:
    rows.add("x")
    take(rows)
    rows.query(f"UPDATE {rows.schema}.requests SET not_before = now() + interval '1 hour'")
    release(rows.connection, "a", [("x", 1)], schema=rows.schema)
    assert rows.columns("x", "due_in")[0] > 3000


def test_given_back_it_gives_way_to_a_newer_one_or_takes_an_older_ones_place(
    rows: WaitingRows,
) -> None:
    reference(rows, "a1", key="a")
    reference(rows, "b1", key="b", produced_in=-1)
    take(rows)
    reference(rows, "a2", key="a", produced_in=-2)
    reference(rows, "b0", key="b", produced_in=-20)
    lost = given_back(rows, ("a1", 1), ("b1", 1))
    assert {(s.id, s.superseded_by) for s in lost} == {("a1", "a2"), ("b0", "b1")}
    assert rows.states() == {
        "a1": "superseded", "a2": "waiting", "b0": "superseded", "b1": "waiting",
    }  # fmt: skip


@pytest.mark.parametrize("statement", ["supersede_claims", "supersede_older", "release_claims"])
def test_given_back_it_never_replaces_a_newer_one_that_comes_meanwhile(
    rows: WaitingRows, comes_before: ComesBefore, statement: str
) -> None:
    rows.query("SET statement_timeout = '30s'")
    reference(rows, "old")
    rows.add("free")
    take(rows)
    comes_before(statement, "new")
    lost = given_back(rows, ("old", 1), ("free", 1))
    assert rows.states() == {"old": "superseded", "new": "waiting", "free": "waiting"}
    assert [(s.id, s.superseded_by) for s in lost] == [("old", "new")]
    assert rows.columns("free", "token") == (None,)


def test_one_that_comes_while_a_claim_is_given_up_spoils_no_other_claim(
    rows: WaitingRows, comes_before: ComesBefore
) -> None:
    """One may not start, as an older one of its reference has just been claimed elsewhere."""
    rows.query("SET statement_timeout = '30s'")
    reference(rows, "old", token="gone")
    rows.add("free")
    comes_before("start_coalesced", "runs", due_in=60, produced_in=-90, token="b:1")
    comes_before("supersede_older", "new")
    haul = take(rows)
    assert ids(haul) == ["free"]
    assert [claim_of(record)[0] for record in haul.unsettled] == ["old"]
    assert rows.states()["new"] == "waiting"
    lost = given_back(rows, ("old", 1))
    assert [(s.id, s.superseded_by) for s in lost] == [("old", "new")]


def test_what_is_superseded_on_the_way_has_a_result_record_where_asked_for(
    rows: WaitingRows,
) -> None:
    reference(rows, "old")
    reference(rows, "given back", key="b")
    take(rows)
    rows.expire("old")
    reference(rows, "new", produced_in=-1)
    reference(rows, "newer", key="b", produced_in=-1)
    claim(rows.connection, "a", ClaimRequest(2, 10), schema=rows.schema, results=True)
    release(rows.connection, "a", [("given back", 1)], schema=rows.schema, results=True)
    records = rows.query(f"SELECT request_id, state FROM {rows.schema}.results ORDER BY id")
    assert records == [("old", "superseded"), ("given back", "superseded")]


def test_what_somebody_has_locked_for_a_moment_is_given_back_all_the_same(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    rows.add("x")
    take(rows)
    other.autocommit = False
    other.execute(f"SELECT FROM {rows.schema}.requests WHERE id = 'x' FOR UPDATE".encode())
    threading.Timer(0.1, other.rollback).start()
    release(rows.connection, "a", [("x", 1)], schema=rows.schema)
    assert rows.columns("x", "token") == (None,)


def test_what_somebody_is_finishing_is_not_waited_for(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    rows.add("x", "y")
    take(rows)
    other.autocommit = False
    other.execute(f"SELECT FROM {rows.schema}.requests WHERE id = 'x' FOR UPDATE".encode())
    assert release(rows.connection, "a", [("x", 1), ("y", 1)], schema=rows.schema) == []
    assert rows.columns("y", "token") == (None,)
    other.rollback()
    assert rows.columns("x", "token") == ("a:1",)
    assert release(rows.connection, "a", [], schema=rows.schema) == []


def test_what_somebody_keeps_locked_holds_up_nothing_of_another_reference(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    """An operator looks at a row that waits, in a transaction that stays open.

    An older one of its reference, whose owner has died, can neither start nor give way to it.
    """
    rows.query("SET statement_timeout = '5s'")
    reference(rows, "old", token="gone")
    reference(rows, "new", produced_in=-1)
    rows.add("free")
    other.autocommit = False
    other.execute(f"SELECT FROM {rows.schema}.requests WHERE id = 'new' FOR UPDATE".encode())

    haul = take(rows)
    assert ids(haul) == ["free"]
    assert [claim_of(record)[0] for record in haul.unsettled] == ["old"]

    assert release(rows.connection, "a", [("old", 1), ("free", 1)], schema=rows.schema) == []
    assert rows.columns("free", "token") == (None,)
    assert rows.columns("old", "token") == ("a:1",), "left to its lease"
    other.rollback()
    release(rows.connection, "a", [("old", 1)], schema=rows.schema)
    assert rows.states()["old"] == "superseded"


def test_what_is_held_up_for_long_is_given_back_some_at_a_time(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    """One transaction that stays open has rows of many references locked."""
    rows.query("SET statement_timeout = '20s'")
    for n in range(5):
        reference(rows, f"old-{n}", key=f"k{n}")
    take(rows)
    for n in range(5):
        reference(rows, f"new-{n}", key=f"k{n}", produced_in=-1)
    other.autocommit = False
    other.execute(f"SELECT FROM {rows.schema}.requests WHERE id ~ 'new-[0-3]' FOR UPDATE".encode())
    left, rounds = [(f"old-{n}", 1) for n in range(5)], 0
    while left:
        before, rounds = len(left), rounds + 1
        left = release(rows.connection, "a", left, schema=rows.schema, within=0.0)
        assert len(left) < before
    assert rounds > 1
    superseded = {name for name, state in rows.states().items() if state == "superseded"}
    assert superseded == {"old-4"}, "and the others are left to their leases"
