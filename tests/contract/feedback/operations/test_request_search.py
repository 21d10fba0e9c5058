"""Requests looked for in a given time, and what is odd in a journal, on a real PostgreSQL."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import psycopg
import pytest

from feedback.operations import inspection
from feedback.operations.bounded import TookTooLong, bounded
from feedback.operations.dead_letters import list_dead, list_dead_heads
from feedback.operations.inspection import LookedBack, OffsetsAsked
from feedback.operations.operator_changes import (
    OperatorChange,
    note_changes,
    note_ended_runs,
    that_ran,
)
from feedback.operations.request_actions import By
from feedback.operations.request_reads import list_requests
from feedback.operations.request_search import Chosen, Found, search, select_named, select_some
from tests.support.journal import Journal

LONG = 20.0


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


def found(journal: Journal, limit: int = 100, **filters: Any) -> Found:
    return search(journal.connection, filters, limit, seconds=LONG, schema=journal.schema)


def ids(journal: Journal, **filters: Any) -> list[str]:
    return [row["id"] for row in found(journal, **filters).rows]


def test_each_filter_finds_its_own(journal: Journal) -> None:
    journal.put("a1", "dead", code="timeout", key=b"k", reference="r", payload=b'{"n": "needle"}',
                finished_at=ago(minutes=5))  # fmt: skip
    journal.put("a%", "done", type="mail.send", error=None, payload=None, finished_at=ago(days=3))
    journal.put("b1", "waiting", type="mail.send", due_at=ago(hours=-1), created_at=ago(hours=2))

    assert ids(journal) == ["a1", "b1", "a%"]
    filters: list[tuple[str, Any, list[str]]] = [
        ("state", "dead", ["a1"]), ("state", "waiting", ["b1"]), ("id", "a1", ["a1"]),
        ("id", "a*", ["a1", "a%"]), ("id", "a%", ["a%"]), ("type", "mail.*", ["b1", "a%"]),
        ("types", ["mail.*", "x"], ["b1", "a%"]), ("types", ["x"], []), ("code", "timeout", ["a1"]),
        ("key", "k", ["a1"]), ("reference", "r", ["a1"]), ("text", "needle", ["a1"]),
        ("text", "boom", ["a1", "b1"]), ("since", ago(days=1), ["a1", "b1"]),
        ("until", ago(hours=1), ["b1", "a%"]),
    ]  # fmt: skip
    for name, value, expected in filters:
        assert ids(journal, **{name: value}) == expected, (name, value)
    assert found(journal).since is None
    with pytest.raises(ValueError, match="unknown filters"):
        found(journal, nonsense=1)


def test_what_was_made_before_and_ended_since_is_among_all(journal: Journal) -> None:
    journal.put("new", "done", finished_at=ago(seconds=2))
    journal.put("old", "done", created_at=ago(days=2), finished_at=ago(seconds=3))
    page = found(journal, since=ago(minutes=5))
    assert ([row["id"] for row in page.rows], page.since) == (["new", "old"], None)
    assert len(select_some(journal.connection, {"since": ago(minutes=5)}, 9, seconds=LONG,
                           schema=journal.schema)) == 2  # fmt: skip


def test_pages_follow_each_other_without_a_gap_or_a_double(journal: Journal) -> None:
    at = ago(minutes=3)
    for n in range(7):
        # Rows of one chunk were made at the same time.
        journal.put(f"r{n}", "done", finished_at=at, created_at=at)
    journal.put("last", "done", finished_at=ago(days=40))
    seen: list[str] = []
    before = None
    for _ in range(10):
        page = found(journal, 3, before=before)
        seen += [row["id"] for row in page.rows]
        before = page.before
        if before is None:
            break
    assert seen == [*(f"r{n}" for n in range(7)), "last"]
    for nonsense in ("x", "2026-01-01T00:00:00 r", "2026-01-01T00:00:00Z a\0"):
        with pytest.raises(ValueError):
            found(journal, before=nonsense)


def searched(journal: Journal, seconds: float = 0.02) -> Found:
    """Of a search in the least time in which this machine looks at some of the rows."""
    began = time.monotonic()
    try:
        return search(
            journal.connection, {"text": "needle", "type": "*"}, 10, seconds=seconds,
            schema=journal.schema,
        )  # fmt: skip
    except TookTooLong:
        assert time.monotonic() - began < LONG
        return searched(journal, 1.5 * seconds)


def test_a_search_ends_in_time_and_says_how_far_it_got(journal: Journal) -> None:
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, created_at, finished_at, payload)"
        " SELECT 'r' || n, 't', 'dead', 'c', 'none', 't', 0, n, now(), at, at,"
        " convert_to(repeat('x', 100), 'UTF8')"
        " FROM (SELECT n, now() - n * interval '1 s' AS at FROM generate_series(1, 30000) n) s"
    )
    page = searched(journal)
    assert page.rows == []
    assert page.since is not None
    with pytest.raises(TookTooLong), bounded(journal.connection, 0.05):
        journal.connection.execute("SELECT pg_sleep(30)")
    assert len(select_some(journal.connection, {"state": "dead"}, 11, seconds=LONG,
                           schema=journal.schema)) == 11  # fmt: skip
    # Those made first: what comes meanwhile changes nothing of who is chosen.
    first = select_some(journal.connection, {"type": "t"}, 2, seconds=LONG, schema=journal.schema)
    assert [one.id for one in first] == ["r30000", "r29999"]
    named = select_named(journal.connection, ["r7", "nobody"], schema=journal.schema)
    assert named == [Chosen("r7", "t", "dead", 1)]
    # The connection serves on, and is not left reading only.
    journal.put("next")


def count(journal: Journal, *ends: tuple[str, str, int]) -> None:
    """(state, code, how many) of this minute."""
    minute = ago(seconds=30).replace(second=0, microsecond=0)
    for state, code, n in ends:
        journal.insert("counters", minute=minute, type="t", state=state, code=code, n=n)


def test_what_is_odd(journal: Journal) -> None:
    now = ago(seconds=30)
    journal.put("often", "done", resends=5, resent_from="requests/0/9", kafka_offset=41,
                finished_at=now)  # fmt: skip
    journal.put("winner", "done", reference="r", finished_at=now)
    for n in range(3):
        journal.put(f"loser{n}", "superseded", superseded_by="winner", reference="r",
                    finished_at=now)  # fmt: skip
    journal.put("first", "dead", payload=b'{"n": 1}', finished_at=now)
    place = {"produced_at": now, "partition": 0, "topic": "requests", "kafka_offset": 50}
    journal.insert("dead_letters", reason="conflict", request_id="first", payload=b'{"n": 2}',
                   detail="d", **place)  # fmt: skip
    count(journal, ("lost", "at_commit", 3), ("done", "read_again", 2), ("done", "ok", 60))
    given = {"schema": journal.schema}
    c = journal.connection

    [often] = inspection.most_resent(c, 24, 10, **given).rows
    assert (often["id"], often["resends"]) == ("often", 5)
    [group] = inspection.coalesced_groups(c, 24, 10, **given).rows
    assert (group["superseded_by"], group["n"], len(group["ids"])) == ("winner", 3, 3)
    took = inspection.superseded_by(c, "winner", ago(hours=1), 10, **given)
    assert (len(took.rows), took.whole) == (3, True)
    [clash] = inspection.conflicts(c, 10, **given)
    assert (clash["payload"], clash["other_payload"]) == (b'{"n": 1}', b'{"n": 2}')
    journal.run("UPDATE {s}.dead_letters SET payload = convert_to(repeat('x', 65537), 'UTF8')")
    [clash] = inspection.conflicts(c, 10, **given)
    assert (clash["other_payload"], clash["other_payload_bytes"]) == (None, 65537)
    assert (clash["payload"], clash["payload_bytes"]) == (b'{"n": 1}', 8)
    counts = {(row["state"], row["n"]) for row in inspection.not_run_counts(c, 24, **given).rows}
    assert counts == {("lost", 3), ("done", 2)}
    places = [OffsetsAsked("requests", 0, 40, 42), OffsetsAsked("requests", 1, 0, 99)]
    became = inspection.requests_at_offsets(c, places, 24, 10, **given)
    assert ([row["id"] for row in became.rows], became.whole) == (["often"], True)


def test_what_operators_changed_is_listed_the_newest_first(journal: Journal) -> None:
    journal.put("first", "dead")
    journal.put("often", "done")
    journal.insert("transitions", run=2, request_id="first", action="retry", from_state="dead",
                   to_state="waiting", who="ann", why="because")  # fmt: skip
    given = {"schema": journal.schema}
    c = journal.connection

    [moved] = inspection.latest_changes(c, 10, **given)
    assert (moved["who"], moved["why"], moved["type"]) == ("ann", "because", "payment.create")
    changes = [
        OperatorChange("limits", "payment.create", "payment.create", "set", "total 5"),
        OperatorChange("limits", "workers", None, "set", "workers 2"),
    ]
    note_changes(c, changes, By("bob", "peak"), **given)
    rows = inspection.latest_changes(c, 2, **given)
    assert [(r["what"], r["name"], r["detail"], r["who"], r["why"]) for r in rows] == [
        ("limits", "workers", "workers 2", "bob", "peak"),
        ("limits", "payment.create", "total 5", "bob", "peak"),
    ]
    assert [r["name"] for r in inspection.latest_changes(c, 9, types=["pay*"], **given)] == [
        "payment.create", "first",
    ]  # fmt: skip
    moved = [{"id": "first", "run": 2, "from_state": "running", "state": "cancelled"},
             {"id": "often", "run": 9, "from_state": "waiting", "state": "cancelled"}]  # fmt: skip
    note_ended_runs(c, that_ran(moved), By("cat", "hangs"), **given)
    [newest, before] = inspection.latest_changes(c, 2, **given)
    names = ("what", "name", "action", "from_state", "to_state", "who", "why")
    assert [newest[one] for one in names] == [
        "request", "first", "cancel", "running", "cancelled", "cat", "hangs",
    ]  # fmt: skip
    assert before["what"] == "limits"


def test_what_ended_is_counted_from_the_whole_minute_on(journal: Journal) -> None:
    count(journal, ("lost", "at_commit", 3), ("done", "read_again", 2), ("done", "ok", 60))
    given = {"schema": journal.schema}
    c = journal.connection

    [ended] = inspection.ended_over_time(c, 60, 60, **given)
    assert (ended["type"], ended["done"]) == ("t", 60)
    first = ago(minutes=60).replace(second=0, microsecond=0)
    for minute in (first, first + timedelta(minutes=1)):
        journal.insert("counters", minute=minute, type="t", state="done", code="ok", n=1)
    begins = inspection.ended_over_time(c, 60, 60, **given)[0]["at"]
    later = ago(minutes=60).replace(second=0, microsecond=0)
    assert begins in (first.timestamp(), later.timestamp()), "with the whole minute an hour ago"


def test_times_are_of_what_ran_when_it_came(journal: Journal) -> None:
    end = ago(minutes=2).replace(second=30, microsecond=0)
    for n in range(1, 101):
        begin = end - timedelta(seconds=n / 10)
        journal.put(f"r{n}", "done", run=1, created_at=begin, finished_at=end,
                    produced_at=begin - timedelta(seconds=n))  # fmt: skip
    journal.put("again", "done", run=2, created_at=ago(hours=1), finished_at=end)
    [row] = inspection.times_over_time(journal.connection, 60, 60, schema=journal.schema)
    assert row["n"] == 100
    assert row["wait"] == pytest.approx([50, 95])
    assert row["run"] == pytest.approx([5, 9.5])


def test_what_is_odd_of_others_takes_no_place_of_ones_own(journal: Journal) -> None:
    now, c, schema = ago(seconds=30), journal.connection, journal.schema
    place = {"produced_at": now, "partition": 0, "topic": "requests"}
    for n, kind in enumerate(("mine.a", "other", "other")):
        journal.put(f"r{n}", "done", type=kind, resends=5 + n, kafka_offset=40 - n,
                    finished_at=now)  # fmt: skip
        journal.put(f"o{n}", "superseded", type=kind, superseded_by=f"r{n}", topic="old",
                    finished_at=now + timedelta(seconds=n))  # fmt: skip
        journal.insert("dead_letters", reason="conflict", request_id=f"r{n}", kafka_offset=n,
                       at=now + timedelta(seconds=n), **place)  # fmt: skip
        journal.insert("transitions", run=2, request_id=f"r{n}", action="retry", from_state="dead",
                       to_state="waiting", who="ann")  # fmt: skip
    looks: list[tuple[str, tuple[Any, ...]]] = [
        ("most_resent", (24, 1)), ("coalesced_groups", (24, 1)), ("conflicts", (1,)),
        ("requests_at_offsets", ([OffsetsAsked("requests", 0, 0, 50)], 24, 1)),
        ("latest_changes", (1,)),
    ]  # fmt: skip
    for name, arguments in looks:
        look = getattr(inspection, name)
        [row] = rows_of(look(c, *arguments, schema=schema))
        assert row["type"] == "other", name
        [row] = rows_of(look(c, *arguments, types=["x", "mine.*"], schema=schema))
        assert row["type"] == "mine.a", name
        assert rows_of(look(c, *arguments, types=[], schema=schema)) == [], name
    for kind in ("mine.a", "other"):
        journal.insert("counters", minute=now, type=kind, state="lost", code="at_commit", n=1)
    [row] = inspection.not_run_counts(c, 24, types=["mine.*"], schema=schema).rows
    assert row["type"] == "mine.a"


def rows_of(answer: list[dict[str, Any]] | LookedBack) -> list[dict[str, Any]]:
    return answer.rows if isinstance(answer, LookedBack) else answer


class Spy(psycopg.Cursor[Any]):
    """Notes what is asked."""

    asked: ClassVar[list[tuple[Any, Any]]] = []

    def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        self.asked.append((query, params))
        return super().execute(query, params, **more)


def read_in_vain(plan: Any) -> int:
    """Rows that were looked at and are none of the answer."""
    names = ("Rows Removed by Index Recheck", "Rows Removed by Filter")
    return sum(plan.get(name, 0) for name in names) + sum(map(read_in_vain, plan.get("Plans", ())))


def test_what_waits_among_old_rows_has_none_of_them_read(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of ends knows in which pages some row has none: with a few rows, in nearly all."""
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, created_at, finished_at, due_at, payload)"
        " SELECT 'r' || n, 't', CASE n %% 300 WHEN 0 THEN 'waiting' ELSE 'done' END, 'ok', 'none',"
        " 't', 0, n, now(), at, CASE n %% 300 WHEN 0 THEN NULL ELSE at END, at,"
        " convert_to(repeat('x', 100), 'UTF8')"
        " FROM (SELECT n, now() - (30000 - n) * interval '1 s' AS at"
        "       FROM generate_series(1, 30000) n) s"
    )
    journal.run("VACUUM ANALYZE {s}.requests")
    c, schema = journal.connection, journal.schema
    Spy.asked.clear()
    monkeypatch.setattr(c, "cursor_factory", Spy)
    assert search(c, {"type": "t"}, 1, seconds=LONG, schema=schema).more
    assert list_requests(c, {"since": ago(seconds=60)}, 100, schema=schema)
    assert list_requests(c, {"type": "t"}, 10, schema=schema)
    assert inspection.most_resent(c, 1, 10, schema=schema).rows == []
    place = OffsetsAsked("t", 0, 29_980, 30_000)
    assert len(inspection.requests_at_offsets(c, [place], 1, 10, schema=schema).rows) == 10
    asked = [(text, given) for text, given in Spy.asked if ".requests" in str(text)]
    assert len(asked) == 3 + 2 * 3, "each of the last two in three windows"
    for text, given in asked:
        told = c.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", given, prepare=False).fetchone()
        assert told is not None
        assert read_in_vain(told[0][0]["Plan"]) < 10_000, text


def rows_read(plan: Any) -> int:
    """Rows that came from tables, whatever became of them."""
    own = plan["Actual Rows"] * plan["Actual Loops"] if "Relation Name" in plan else 0
    return int(own) + sum(map(rows_read, plan.get("Plans", ())))


def test_the_latest_dead_letters_are_found_by_their_time(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)  # of both: to write the first may take a while
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, finished_at) SELECT 'r' || n, 't', 'dead', 'timeout', 'none', 't', 0, n,"
        " now(), %s - n * interval '1 s' FROM generate_series(1, 20000) n",
        now,
    )
    journal.run(
        "INSERT INTO {s}.dead_letters (reason, topic, partition, kafka_offset, produced_at, at)"
        " SELECT 'malformed', 't', 0, n, now(), %s - n * interval '1 s' - interval '0.5 s'"
        " FROM generate_series(1, 20000) n",
        now,
    )
    journal.run(
        "INSERT INTO {s}.transitions (run, request_id, action, from_state, to_state, who)"
        " SELECT 2, 'r' || n, 'retry', 'dead', 'waiting', 'ann' FROM generate_series(1, 5000) n"
    )
    for table in ("requests", "dead_letters", "transitions"):
        journal.run(f"VACUUM ANALYZE {{s}}.{table}")
    given: dict[str, Any] = {"schema": journal.schema}
    Spy.asked.clear()
    monkeypatch.setattr(journal.connection, "cursor_factory", Spy)
    # None of the newest of either kind is one of those that are older than all of them.
    none = {"reason": "malformed", "kind": "request"}
    assert list_dead_heads(journal.connection, none, 3, newest=100, **given) == []
    monkeypatch.setattr(inspection, "NEWEST", 100)
    assert inspection.conflicts(journal.connection, 3, **given) == []
    assert inspection.latest_changes(journal.connection, 3, types=["no"], **given) == []
    for look in (list_dead_heads, list_dead):
        rows = look(journal.connection, {}, 3, **given)
        assert [row["kafka_offset"] for row in rows] == [1, 1, 2]
        assert [row["kind"] for row in rows] == ["request", "message", "request"]
    [row] = list_dead(journal.connection, {"kind": "message"}, 1, most_bytes=9, **given)
    assert (row["kind"], row["kafka_offset"]) == ("message", 1)
    asked = [(text, values) for text, values in Spy.asked if "LIMIT" in str(text)]
    assert len(asked) == 6
    for text, values in asked:
        told = journal.connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
        [[[explained]]] = told.fetchall()
        assert rows_read(explained["Plan"]) + read_in_vain(explained["Plan"]) < 1000, text
