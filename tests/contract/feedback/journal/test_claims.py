"""Claiming rows of the waiting queue and giving them back, on real PostgreSQL."""

from __future__ import annotations

import math
import threading
from collections import Counter

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.record import CLAIM, NOWHERE, TYPE, claim_token
from feedback.contract.states import MOST_LOST_CLAIMS
from feedback.journal.claimed_rows import UnreadableRow
from feedback.journal.claims import (
    LEASE,
    ClaimRequest,
    ClaimResult,
    claim,
    renew,
    renew_calls,
    share_out,
)
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.connections import due_channel
from feedback.journal.releases import release
from stack import Stack
from tests.support.claiming import ids, reference, take, waits_for_a_lock
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

# A claim


def test_a_claim_takes_what_is_due_and_leaves_the_rest(rows: WaitingRows) -> None:
    rows.add("later", due_in=30)
    rows.add("another type", due_in=40, type="another")
    rows.add("done", state="done")
    rows.add("now")
    haul = take(rows)
    assert ids(haul) == ["now"]
    assert haul.due_in == pytest.approx(40, abs=3)
    state, token, run, crashes, due_in = rows.columns(
        "now", "state", "token", "run", "crashes", "due_in"
    )
    assert (state, token, run, crashes) == ("waiting", "a:1", 1, 0)
    assert due_in == pytest.approx(LEASE, abs=2)
    assert rows.columns("now", "lease_until = due_at") == (True,)
    assert rows.columns("later", "token", "run") == (None, 0)
    assert take(rows, order=2).rows == []


def test_a_claim_ends_with_the_row_that_is_more_than_the_bytes_it_may_take(
    rows: WaitingRows,
) -> None:
    """What rows weigh nobody knows before: thousands of large ones would be gigabytes."""
    for n in range(6):
        rows.add(f"r{n}", type=f"t{n % 2}", due_in=n - 10.0, payload=bytes(1000))
    assert ids(take(rows, most_bytes=2500)) == ["r0", "r1", "r2"]
    assert ids(take(rows, most_bytes=1, order=2)) == ["r3"], "one of any size comes"
    assert ids(take(rows, order=3)) == ["r4", "r5"]


def test_a_claim_counts_headers_for_what_they_take_in_memory(rows: WaitingRows) -> None:
    """Empty ones of one name: the database keeps a thousand in a few hundred bytes."""
    for n in range(6):
        rows.add(f"r{n}", type=f"t{n % 2}", due_in=n - 10.0, headers=[("", b"")] * 1000)
    assert ids(take(rows, most_bytes=250_000)) == ["r0", "r1"]
    assert ids(take(rows, order=2)) == ["r2", "r3", "r4", "r5"]


def test_a_record_is_what_the_message_was(rows: WaitingRows) -> None:
    stored = [
        ("ce_type", b"elsewhere"), ("ce_id", b"another"), ("ce_notbefore", b"2026-01-01T00:00:00Z"),
        ("ce_reference", b"r"), ("x", b"\xff"), ("empty", None),
    ]  # fmt: skip
    rows.add("id-1", type="pay", key=b"k", payload=b'{"n":1}', headers=stored)
    [produced] = rows.columns("id-1", "(extract(epoch FROM produced_at) * 1000)::float8")
    [claimed] = take(rows, order=7).rows
    topic, *place, timestamp, key, value, headers, kind, claim = claimed.record
    assert (topic, place, kind, claim) == ("requests", [NOWHERE, NOWHERE], "pay", 7)
    assert (key, value) == (b"k", b'{"n":1}')
    assert abs(timestamp - produced) <= 1
    assert headers == [
        ("ce_id", b"id-1"), ("ce_type", b"pay"), ("ce_reference", b"r"), ("x", b"\xff"),
        ("empty", None),
    ]  # fmt: skip
    assert claimed.verdict is None


def test_those_that_are_due_first_go_first(rows: WaitingRows) -> None:
    for name, due_in in (("c", -1), ("a", -3), ("d", -0.5), ("b", -2)):
        rows.add(name, due_in=due_in, type="one" if name in "ac" else "two")
    assert ids(take(rows, 3)) == ["a", "b", "c"]
    assert ids(take(rows, 3, order=2)) == ["d"]


def test_types_share_a_claim_and_one_alone_has_it_all(rows: WaitingRows) -> None:
    rows.add_many(1000, types=2)
    rows.add(*[f"rare-{n}" for n in range(3)], type="rare")
    kinds = Counter(claimed.record[TYPE] for claimed in take(rows, 103).rows)
    assert kinds == {"t0": 50, "t1": 50, "rare": 3}
    rows.query(f"UPDATE {rows.schema}.requests SET type = 't0' WHERE token IS NULL")
    assert len(take(rows, 90, order=2).rows) == 90


def test_limits_and_paused_types(rows: WaitingRows) -> None:
    rows.add_many(100, types=4)
    haul = take(rows, 100, limits={"t0": 2, "t1": 0}, paused=["t2"])
    kinds = Counter(claimed.record[TYPE] for claimed in haul.rows)
    assert kinds["t0"] == 2
    assert set(kinds) == {"t0", "t3"}


BAD_ROWS = {
    "no-list": "headers = '{\"v\": 2}'",
    "triple": 'headers = \'[["x", "YQ==", 1]]\'',
    "no-base64": 'headers = \'[["x", "Y"]]\'',
    "no-number": 'headers = \'[["ce_timeout", "c29vbg=="]]\'',
    "twice": 'headers = \'[["ce_replyto", "YQ=="], ["ce_replyto", "YQ=="]]\'',
}


def test_rows_that_hold_no_request_are_dead_and_stop_no_neighbour(rows: WaitingRows) -> None:
    """As another version, or somebody by hand, may write them."""
    rows.add(*BAD_ROWS, "good", "endless", "long-ago")
    rows.add("bad-older", "good-newer", coalesce_key="k", token="gone", type="count")
    rows.add("bad-reference", coalesce_key="another", type="count")
    no_list = dict.fromkeys(("bad-older", "bad-reference"), "headers = '7'")
    for name, change in {**BAD_ROWS, **no_list}.items():
        rows.query(f"UPDATE {rows.schema}.requests SET {change} WHERE id = '{name}'")
    rows.query(
        f"UPDATE {rows.schema}.requests SET not_before = NULL, created_at = 'infinity'"
        " WHERE id = 'endless'"
    )
    rows.query(f"UPDATE {rows.schema}.requests SET not_before = '-infinity' WHERE id = 'long-ago'")
    ended: list[Superseded | UnreadableRow] = []
    haul = claim(
        rows.connection, "a", ClaimRequest(1, 100),
        schema=rows.schema, results=True, commits=Commits(ended.extend),
    )  # fmt: skip

    dead = {*BAD_ROWS, "bad-reference"}
    assert sorted(ids(haul)) == ["endless", "good", "good-newer", "long-ago"]
    superseded = [row.id for row in ended if isinstance(row, Superseded)]
    unreadable = [row for row in ended if isinstance(row, UnreadableRow)]
    assert superseded == ["bad-older"]
    assert {(row.id, row.state, row.code) for row in unreadable} == {
        (name, "dead", "malformed") for name in dead
    }
    state, code, token, error, payload, due_at = rows.columns(
        "triple", "state", "code", "token", "error", "payload", "due_at"
    )
    assert (state, code, token, payload, due_at) == ("dead", "malformed", None, b"{}", None)
    assert error.startswith("its row holds no request: ValueError")
    told = rows.query(f"SELECT request_id, state, code FROM {rows.schema}.results")
    gone = ("bad-older", "superseded", "superseded")
    assert set(told) == {gone, *((name, "dead", "malformed") for name in dead)}


@pytest.mark.parametrize("time", ["-infinity", "infinity"])
def test_a_due_time_without_end_stops_no_type(rows: WaitingRows, time: str) -> None:
    """Where a difference of such times is no error, an endless wait would be one."""
    rows.add("first")
    rows.add("odd", type="odd")
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = '{time}' WHERE id = 'odd'")
    haul = take(rows, 10)
    assert sorted(ids(haul)) == (["first", "odd"] if time == "-infinity" else ["first"])
    assert haul.due_in is None or math.isfinite(haul.due_in)


def test_claims_that_ran_out_can_be_left_to_whoever_has_them(rows: WaitingRows) -> None:
    reference(rows, "theirs")
    take(rows, order=1, who="b")
    rows.expire("theirs")
    reference(rows, "newer", produced_in=-1)  # it would supersede what may yet have an end
    rows.add("free")
    spared = claim(rows.connection, "a", ClaimRequest(1, 9), schema=rows.schema, expired=False)
    assert ids(spared) == ["free"]
    assert rows.states() == dict.fromkeys(("theirs", "newer", "free"), "waiting")
    assert ids(take(rows, order=2)) == ["newer"]


def test_nothing_waits(rows: WaitingRows) -> None:
    assert take(rows) == ClaimResult([], None, "")


@given(
    st.integers(0, 50),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 20), max_size=8),
)
def test_shares_are_fair_and_use_what_there_is(n: int, room: dict[str, int]) -> None:
    shares = share_out(n, room)
    assert sum(shares.values()) == min(n, sum(room.values()))
    for name, share in shares.items():
        assert 0 < share <= room[name]
    for name, most in room.items():
        if shares.get(name, 0) < most:
            assert max(shares.values(), default=0) <= shares.get(name, 0) + 1
    # What can't be divided is the first ones': those of whom rows have been due longest.
    open_ones = [shares.get(name, 0) for name, most in room.items() if shares.get(name, 0) < most]
    assert open_ones == sorted(open_ones, reverse=True)


def test_a_small_claim_takes_of_the_type_that_has_waited_longest(rows: WaitingRows) -> None:
    """Of what can't be divided others with a backlog would have it again and again."""
    for n in range(3):
        rows.add(*(f"{n}-{i}" for i in range(3)), type=f"t{n}", due_in=n - 10.0)
    assert ids(take(rows, most=1)) == ["0-0"]
    assert ids(take(rows, most=2, order=2)) == ["0-1", "1-0"]


def test_types_of_which_none_may_start_do_not_use_a_claim_up(rows: WaitingRows) -> None:
    """What has been due longest waits behind its reference, which may run for hours."""
    for n in range(6):
        reference(rows, f"old{n}", type=f"t{n}", due_in=n - 50.0)
        take(rows, order=n + 1)
        reference(rows, f"new{n}", type=f"t{n}", due_in=n - 40.0, produced_in=-30)
    rows.add("other", "another", type="other")
    rows.add("last", type="last")
    assert ids(take(rows, most=1, order=9)) == ["other"]
    assert rows.columns("last", "token", "run") == (None, 0), "no more than was wanted"
    assert ids(take(rows, most=5, order=10)) == ["another", "last"]


# Two instances


def test_two_instances_claim_distinct_rows(
    stack: Stack, rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    rows.add_many(4000)
    taken: dict[str, list[str]] = {"a": [], "b": []}

    def drain(who: str, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        order, misses = 0, 0
        while misses < 3:
            order += 1
            haul = claim(connection, who, ClaimRequest(order, 100), schema=rows.schema)
            misses = 0 if haul.rows else misses + 1
            taken[who] += ids(haul)

    threads = [
        threading.Thread(target=drain, args=args) for args in (("a", rows.connection), ("b", other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    both = taken["a"] + taken["b"]
    assert len(both) == len(set(both)) >= 2000
    assert min(len(part) for part in taken.values()) > 0
    tokens = rows.query(
        f"SELECT split_part(token, ':', 1), count(*) FROM {rows.schema}.requests"
        " WHERE token IS NOT NULL GROUP BY 1"
    )
    assert dict(tokens) == {who: len(part) for who, part in taken.items()}


def test_a_row_that_somebody_holds_is_left(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    rows.add("held", "free")
    with other.transaction():
        other.execute(f"SELECT FROM {rows.schema}.requests WHERE id = 'held' FOR UPDATE".encode())
        assert ids(take(rows)) == ["free"]
    assert ids(take(rows, order=2)) == ["held"]


def test_what_was_cancelled_between_is_not_claimed(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    rows.add("x")
    haul: list[ClaimResult] = []
    with other.transaction():
        other.execute(
            f"UPDATE {rows.schema}.requests SET state = 'cancelled', due_at = NULL".encode()
        )
        haul.append(take(rows))
    haul.append(take(rows, order=2))
    assert [ids(h) for h in haul] == [[], []]
    assert rows.states() == {"x": "cancelled"}


# Leases


def test_an_expired_claim_is_due_again_and_counted_as_lost(rows: WaitingRows) -> None:
    """It takes many of them: nobody knows whether it was begun, which a crash says."""
    rows.add("x")
    take(rows)
    for lost in range(1, MOST_LOST_CLAIMS):
        rows.expire("x")
        [again] = take(rows, order=lost, who="b").rows
        assert again.verdict is None
        counts = rows.columns("x", "token", "run", "crashes", "lost_claims")
        assert counts == (f"b:{lost}", lost + 1, 0, lost)
    # Given back it was not begun by the last one, but perhaps by others.
    release(rows.connection, "b", [("x", lost)], schema=rows.schema)
    [again] = take(rows, order=8).rows
    assert (again.verdict, rows.columns("x", "lost_claims")) == (None, (lost,))
    rows.expire("x")
    [last] = take(rows, order=9).rows
    assert last.verdict == "instance_died"
    assert rows.columns("x", "crashes", "lost_claims") == (0, MOST_LOST_CLAIMS)


def test_a_row_that_has_crashed_too_often_is_only_to_be_written(rows: WaitingRows) -> None:
    rows.add("x", crashes=2)
    [found] = take(rows).rows
    assert found.verdict == "worker_died"


def test_renewing_keeps_a_claim_and_only_its_own(rows: WaitingRows) -> None:
    rows.add("mine", "lost", "given back")
    take(rows, order=5)
    rows.expire("mine", "lost")
    rows.query(f"UPDATE {rows.schema}.requests SET token = 'b:1' WHERE id = 'lost'")
    rows.query(f"UPDATE {rows.schema}.requests SET token = NULL WHERE id = 'given back'")
    pairs = [("mine", 5), ("lost", 5), ("given back", 5), ("nobody", 5)]
    assert renew(rows.connection, "a", pairs, schema=rows.schema) == 1
    assert rows.columns("mine", "due_in")[0] == pytest.approx(LEASE, abs=2)
    assert rows.columns("lost", "due_in")[0] < 0
    assert renew(rows.connection, "a", [], schema=rows.schema) == 0


def test_of_two_claims_of_one_row_the_later_one_counts(rows: WaitingRows) -> None:
    rows.add("x")
    take(rows, order=9)
    rows.expire("x")
    take(rows, order=10)
    pairs = [("x", 10), ("x", 9)]
    assert renew(rows.connection, "a", pairs, schema=rows.schema) == 1
    release(rows.connection, "a", [("x", 9)], schema=rows.schema)
    assert rows.columns("x", "token") == ("a:10",)


def test_calls_outside_are_held_by_their_chunks(rows: WaitingRows) -> None:
    rows.add("x", "y", "waits")
    rows.query(
        f"UPDATE {rows.schema}.requests SET state = 'running', token = 'a-' || id,"
        " due_at = NULL, lease_until = now() WHERE id IN ('x', 'y')"
    )
    take(rows)
    assert renew_calls(rows.connection, ["a-x", "a-z", "a:1"], 60.0, schema=rows.schema) == 1
    assert renew_calls(rows.connection, [], 60.0, schema=rows.schema) == 0
    later = "lease_until > now() + interval '50 s'"
    assert (rows.columns("x", later), rows.columns("y", later)) == ((True,), (False,))


def test_the_channel_of_a_long_name_fits(rows: WaitingRows) -> None:
    assert due_channel("oncepool") == "oncepool_due"
    longest = due_channel("s" * 63)
    rows.query("SELECT pg_notify(%s, '')", longest)
    assert len(longest) == 63


def test_no_two_claims_share_a_token() -> None:
    tokens = {claim_token(who, n) for who in ("a", "b") for n in range(20)}
    assert len(tokens) == 40


# References


def test_a_reference_that_runs_has_the_next_wait_behind_it(rows: WaitingRows) -> None:
    reference(rows, "first")
    assert ids(take(rows)) == ["first"]
    reference(rows, "next", produced_in=-1)
    reference(rows, "elsewhere", key="another")
    assert ids(take(rows, order=2)) == ["elsewhere"]
    rows.query(f"UPDATE {rows.schema}.requests SET state = 'done', token = NULL WHERE id = 'first'")
    assert ids(take(rows, order=3)) == ["next"]
    started = rows.query(f"SELECT coalesce_key, request_id FROM {rows.schema}.coalesced ORDER BY 1")
    assert started == [("another", "elsewhere"), ("k", "next")]


def test_an_expired_claim_gives_way_to_a_newer_one(rows: WaitingRows) -> None:
    reply = [("ce_replyto", b"me")]
    reference(rows, "old", headers=reply)
    take(rows)
    rows.expire("old")
    reference(rows, "new", produced_in=-1)
    ended: list[Superseded | UnreadableRow] = []
    assert ids(take(rows, order=2, ended=ended)) == ["new"]
    [lost] = ended
    assert isinstance(lost, Superseded)
    assert (lost.id, lost.superseded_by, lost.headers) == ("old", "new", reply)
    assert rows.columns("old", "state", "superseded_by", "token", "due_at") == (
        "superseded", "new", None, None,
    )  # fmt: skip


def test_an_expired_claim_gives_way_to_one_whose_window_is_still_open(rows: WaitingRows) -> None:
    reference(rows, "old")
    take(rows)
    rows.expire("old")
    reference(rows, "new", produced_in=-1, due_in=20)
    assert ids(take(rows, order=2)) == []
    assert rows.states() == {"old": "superseded", "new": "waiting"}
    assert rows.columns("new", "token") == (None,)


def test_an_expired_claim_that_is_the_newest_runs_again(rows: WaitingRows) -> None:
    reference(rows, "newest", produced_in=-1)
    take(rows)
    reference(rows, "older", produced_in=-10)
    rows.expire("newest")
    assert ids(take(rows, order=2)) == ["newest"]
    assert rows.columns("older", "state", "token") == ("waiting", None)


def test_of_two_claims_of_a_reference_at_once_one_is_given_back(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    """An expired one is claimed again while a newer one arrives and is claimed by another."""
    reference(rows, "old")
    take(rows)
    rows.expire("old")
    hauls: dict[str, ClaimResult] = {}

    def claim_new() -> None:
        hauls["b"] = claim(other, "b", ClaimRequest(1, 10), schema=rows.schema)

    thread = threading.Thread(target=claim_new)
    with rows.connection.transaction():
        hauls["a"] = take(rows, order=2)
        with psycopg.connect(other.info.dsn, password=other.info.password) as third:
            adding = WaitingRows.__new__(WaitingRows)
            adding.schema, adding.connection = rows.schema, third
            adding._offsets = rows._offsets
            reference(adding, "new", produced_in=-1)
        thread.start()
        eventually(lambda: waits_for_a_lock(rows, other))
    thread.join(30)
    assert ids(hauls["a"]) == ["old"]
    assert ids(hauls["b"]) == []
    assert rows.columns("new", "token", "state") == (None, "waiting")


def test_orders_are_kept_apart(rows: WaitingRows) -> None:
    rows.add("x", "y")
    one, two = take(rows, 1, order=1), take(rows, 1, order=2)
    assert [c.record[CLAIM] for c in (*one.rows, *two.rows)] == [1, 2]


@pytest.mark.parametrize("apart", [8, 0], ids=["by time", "by arrival where the times are equal"])
def test_an_older_one_does_not_run_after_a_newer_one_that_was_started(
    rows: WaitingRows, apart: int
) -> None:
    """The older one's instance was killed; while its lease ran the newer one took its turn."""
    rows.add("old", "new")
    seconds = f"CASE id WHEN 'old' THEN {apart + 1} ELSE 1 END * interval '1 s'"
    arrived = "CASE id WHEN 'old' THEN 2 ELSE 1 END * interval '1 s'"
    rows.query(
        f"UPDATE {rows.schema}.requests SET coalesce_key = 'k', produced_at = now() - {seconds},"
        f" created_at = now() - {arrived}, token = CASE id WHEN 'old' THEN 'dead:1' END"
    )
    newest = f"INSERT INTO {rows.schema}.coalesced SELECT produced_at, type, 'k', id"
    rows.query(f"{newest} FROM {rows.schema}.requests WHERE id = 'new'")
    rows.query(f"UPDATE {rows.schema}.requests SET state = 'done', due_at = NULL WHERE id = 'new'")
    assert ids(take(rows)) == []
    assert rows.columns("old", "state", "superseded_by", "token") == ("superseded", "new", None)


def test_an_older_one_whose_lease_has_ended_cannot_finish_after_a_newer_one_began(
    rows: WaitingRows,
) -> None:
    """Its holder hangs, and would write its end under the token that it has."""
    reference(rows, "old", produced_in=-60.0)
    assert ids(take(rows, order=1)) == ["old"]
    reference(rows, "new", produced_in=-1.0)
    rows.expire("old")
    rows.query(
        f"UPDATE {rows.schema}.requests SET due_at = now() + interval '1 s' WHERE id = 'old'"
    )
    eventually(lambda: rows.columns("old", "due_at <= now()") == (True,))

    found = take(rows, most=1, order=2)

    assert "new" in ids(found) or ids(take(rows, order=3)) == ["new"]
    assert rows.columns("old", "state", "superseded_by", "token") == ("superseded", "new", None)
