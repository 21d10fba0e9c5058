"""Parking on real PostgreSQL: new rows, and failed ones that were sent again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.contract.fingerprint import fingerprint
from feedback.contract.record import claim_of
from feedback.journal.claims import ClaimRequest, claim
from feedback.journal.parking import ParkedRequest, ParkResult, columns_of, park
from feedback.journal.queries import query
from feedback.journal.rows import headers_json
from stack import Stack
from tests.support.claiming import ComesBefore
from tests.support.moves import forbidden_moves, watch_moves
from tests.support.waiting_rows import WaitingRows

AT = datetime(2026, 5, 1, tzinfo=UTC)
PRINT = fingerprint("pay", b'{"n": 1}')


@pytest.fixture
def rows(rows: WaitingRows, stack: Stack, schema: str) -> Iterator[WaitingRows]:
    watch_moves(stack.database, schema)
    yield rows
    # How a test wrote its rows is none.
    assert [m for m in forbidden_moves(stack.database, schema) if m[0] is not None] == []


def parcel(name: str, *headers: tuple[str, bytes], **changes: Any) -> ParkedRequest:
    made = ParkedRequest(
        name, "pay", "requests", 0, 77, AT, None, 0, 0, b"other key", None, b'{"n":1}',
        headers_json([("ce_id", name.encode()), ("ce_type", b"pay"), *headers]),
    )  # fmt: skip
    return made._replace(**changes)


def parked(rows: WaitingRows, *parcels: ParkedRequest, results: bool = False) -> ParkResult:
    return park(rows.connection, parcels, "parked", schema=rows.schema, results=results)


def failed(rows: WaitingRows, *names: str, **more: Any) -> None:
    """As a run leaves them that failed for good."""
    rows.add(
        *names,
        **{
            "type": "pay", "state": "failed", "code": "handler_error", "run": 3, "attempt": 2,
            "used": 2, "error": "boom", "fingerprint": PRINT, "key": b"k", "payload": b'{"n": 1}',
            "finished_at": AT, **more,
        },
    )  # fmt: skip
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = NULL, not_before = NULL"
               " WHERE state = 'failed'")  # fmt: skip


def test_a_failed_one_that_was_sent_again_waits_with_what_its_row_says(rows: WaitingRows) -> None:
    stored = [("ce_source", b"s"), ("ce_expirytime", b"2026-01-01T00:00:00Z"), ("x", b"1")]
    failed(rows, "a", headers=stored)
    again = parcel("a", ("ce_replyto", b"me"), ("x", b"2"))
    assert parked(rows, again, parcel("new")) == ParkResult({"a": 4, "new": 0}, [])
    assert rows.columns("a", "state", "code", "attempt", "used", "run", "crashes") == (
        "waiting", "parked", 1, 0, 4, 0,
    )  # fmt: skip
    assert rows.columns("a", "finished_at", "error", "token", "lease_until", "due_at <= now()") == (
        None, None, None, None, True,
    )  # fmt: skip
    assert rows.columns("a", "topic", "partition", "kafka_offset") == ("requests", 0, 77)
    # How long it is wanted and for whom is the resend's.
    assert rows.columns("a", "payload", "key", "fingerprint") == (b'{"n": 1}', b"k", PRINT)
    haul = claim(rows.connection, "i", ClaimRequest(1, 9), schema=rows.schema)
    [record] = [row.record for row in haul.rows if claim_of(row.record)[0] == "a"]
    assert record[5:7] == (
        b'{"n": 1}',
        [("ce_id", b"a"), ("ce_type", b"pay"), ("ce_source", b"s"), ("x", b"1"),
         ("ce_replyto", b"me")],
    )  # fmt: skip
    assert rows.columns("a", "run", "crashes") == (5, 0)


def test_other_rows_are_left(rows: WaitingRows) -> None:
    for state in ("waiting", "running", "in_doubt", "dead", "cancelled", "done", "superseded"):
        failed(rows, state, state=state)
    failed(rows, "other type", type="another")
    failed(rows, "no payload", payload=None)
    failed(rows, "other payload", fingerprint=fingerprint("pay", b'{"n": 2}'))
    failed(rows, "its own fingerprint", payload=b'{"n": 2}', own_fingerprint=True)
    failed(rows, "no fingerprint", payload=b'{"n": 2}', fingerprint=None)
    before = rows.query(f"SELECT * FROM {rows.schema}.requests ORDER BY id")
    names = [name for (name,) in rows.query(f"SELECT id FROM {rows.schema}.requests")]
    assert parked(rows, *map(parcel, names)) == ParkResult({}, [])
    assert rows.query(f"SELECT * FROM {rows.schema}.requests ORDER BY id") == before


@pytest.mark.parametrize(
    "place, waits",
    [
        (("requests", 0, 77), False), (("requests", 0, 78), False), (("requests", 0, 76), True),
        (("requests", 1, 78), True), (("others", 0, 77), True),
    ],
)  # fmt: skip
def test_what_a_message_or_a_later_copy_wrote_is_left_where_it_is_only_read_again(
    rows: WaitingRows, place: tuple[str, int, int], waits: bool
) -> None:
    failed(rows, "a", "b")
    topic, partition, offset = place
    rows.query(
        f"UPDATE {rows.schema}.requests SET topic = '{topic}', partition = {partition},"
        f" kafka_offset = {offset}"
    )
    # What is new, as after offsets that were set back, was sent again whatever is there.
    found = parked(rows, parcel("a", read_again=True), parcel("b"))
    assert found.runs.keys() == ({"a", "b"} if waits else {"b"})


def test_starts_that_died_count_and_a_time_that_was_named_holds(rows: WaitingRows) -> None:
    failed(rows, "a", "b", crashes=1)
    hour = datetime.now(UTC) + timedelta(hours=1)
    suspect, later = parcel("a", run=2, crashes=1), parcel("b", not_before=hour)
    assert parked(rows, suspect, later).runs == {"a": 6, "b": 4}
    assert rows.columns("a", "crashes", "due_at <= now()") == (2, True)
    assert rows.columns("b", "crashes", "due_at", "not_before") == (1, hour, hour)


def test_what_may_have_been_begun_is_known_to_be_so(rows: WaitingRows) -> None:
    failed(rows, "a", "b", lost_claims=3)
    made = [parcel(name, begun=name in "ac") for name in "abcd"]
    assert set(parked(rows, *made).runs) == set("abcd")
    assert [rows.columns(name, "lost_claims") for name in "abcd"] == [(1,), (0,), (1,), (0,)]


def test_a_failed_one_gives_way_to_a_newer_one_of_its_reference(rows: WaitingRows) -> None:
    for name in ("waits", "runs", "ran"):
        failed(rows, f"old-{name}", coalesce_key=name, produced_in=-60)
    rows.add("waits", coalesce_key="waits", produced_in=-1, type="pay")
    rows.add("runs", coalesce_key="runs", produced_in=-1, type="pay", token="x:1")
    rows.query(
        f"INSERT INTO {rows.schema}.coalesced VALUES (now(), 'pay', 'ran', 'ran')"
    )  # fmt: skip
    names = [f"old-{name}" for name in ("ran", "runs", "waits")]
    found = parked(rows, *map(parcel, names), results=True)
    assert found.runs == {}
    lost = sorted((s.id, s.superseded_by, s.run) for s in found.superseded)
    assert lost == [("old-ran", "ran", 4), ("old-runs", "runs", 4), ("old-waits", "waits", 4)]
    assert {rows.columns(name, "state", "token", "due_at") for name in names} == {
        ("superseded", None, None)
    }
    assert rows.states()["waits"] == "waiting"
    noted = rows.query(f"SELECT request_id, state FROM {rows.schema}.results ORDER BY 1")
    assert noted == [(name, "superseded") for name in names]


def test_an_older_one_of_its_reference_gives_way_to_it(rows: WaitingRows) -> None:
    failed(rows, "newest", "older", coalesce_key="k", produced_in=-5)
    rows.query(
        f"UPDATE {rows.schema}.requests SET produced_at = now() - interval '1 s'"
        " WHERE id = 'newest'"
    )
    rows.add("oldest", coalesce_key="k", produced_in=-60, type="pay")
    found = parked(rows, parcel("newest"), parcel("older"))
    assert found.runs == {"newest": 4}
    assert {(s.id, s.superseded_by) for s in found.superseded} == {
        ("older", "newest"),
        ("oldest", "newest"),
    }
    assert rows.columns("newest", "state", "coalesce_key", "token") == ("waiting", "k", None)
    assert rows.columns("newest", "due_at <= now()") == (True,)


def test_what_another_copy_holds_is_left_to_it(rows: WaitingRows, stack: Stack) -> None:
    failed(rows, "held", "free")
    with psycopg.connect(stack.database) as other:
        other.execute(f"SELECT FROM {rows.schema}.requests WHERE id = 'held' FOR UPDATE".encode())
        assert parked(rows, parcel("held"), parcel("free")).runs == {"free": 4}
    assert rows.states() == {"held": "failed", "free": "waiting"}


def test_rows_are_found_by_their_ids_in_a_large_table(rows: WaitingRows) -> None:
    rows.add_many(50_000)
    rows.query(
        f"UPDATE {rows.schema}.requests SET state = 'failed', due_at = NULL WHERE type = 't0'"
    )
    rows.query(f"VACUUM ANALYZE {rows.schema}.requests")
    many = [parcel(f"r{n}", type="t0", payload=b"{}") for n in range(3, 1500, 3)]
    values = {**columns_of(many), "code": "parked", "token": "x"}
    for name in ("lock_failed", "revive"):
        plan = rows.explain(query(name, rows.schema), values)
        assert '"Node Type":"Seq Scan"' not in plan, (name, plan)
    assert len(parked(rows, *many).runs) == len(many)


@pytest.fixture
def commits(rows: WaitingRows) -> Iterator[str]:
    """The table into which each COMMIT of rows writes the lock_timeout under which it stands; that
    of a row whose id begins with "refused" fails, as one that has waited too long for its turn."""
    table = f"{rows.schema}.commits"
    rows.query(f"CREATE TABLE {table} (id text, lock_timeout text)")
    rows.query(f"""
        CREATE FUNCTION {rows.schema}.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id LIKE 'refused%%' THEN
                RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = '55P03';
            END IF;
            INSERT INTO {table} VALUES (NEW.id, current_setting('lock_timeout'));
            RETURN NULL;
        END $$""")
    rows.query(f"""
        CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON {rows.schema}.requests
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {rows.schema}.at_commit()""")
    yield table
    rows.query(f"DROP TRIGGER at_commit ON {rows.schema}.requests")
    rows.query(f"DROP FUNCTION {rows.schema}.at_commit")
    rows.query(f"DROP TABLE {table}")


def test_what_a_commit_refused_is_not_told_as_parked(rows: WaitingRows, commits: str) -> None:
    failed(rows, "again")
    done = parked(rows, parcel("new"), parcel("refused"), parcel("again"))
    assert done.runs.keys() == {"new", "again"}
    waiting = rows.query(f"SELECT id FROM {rows.schema}.requests WHERE state = 'waiting'")
    assert sorted(waiting) == [("again",), ("new",)]


def test_a_commit_waits_for_its_turn_to_notify_as_long_as_that_takes(
    rows: WaitingRows, commits: str
) -> None:
    """All that notify commit one after the other; a lock_timeout holds there, too."""
    parked(rows, parcel("new"))
    assert rows.query(f"SELECT * FROM {commits}") == [("new", "0")]


@pytest.mark.parametrize("statement", ["supersede_older", "release_claims"])
def test_parked_again_it_never_replaces_a_newer_one_that_comes_meanwhile(
    rows: WaitingRows, comes_before: ComesBefore, statement: str
) -> None:
    rows.query("SET statement_timeout = '30s'")
    failed(rows, "old", coalesce_key="k")
    comes_before(statement, "new", type="pay")
    result = parked(rows, parcel("old"))
    assert [(s.id, s.superseded_by) for s in result.superseded] == [("old", "new")]
    assert (result.runs, rows.states()) == ({}, {"old": "superseded", "new": "waiting"})


def test_bytes_are_kept_as_they_are_however_the_server_reads_a_backslash(rows: WaitingRows) -> None:
    rows.connection.execute("SET standard_conforming_strings = off")
    parked(rows, parcel("a", key=b"\\k\x00\xff"), parcel("b", key=None))
    assert rows.columns("a", "key", "payload") == (b"\\k\x00\xff", b'{"n":1}')
    assert rows.columns("b", "key") == (None,)
