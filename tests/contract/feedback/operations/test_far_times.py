"""What operators read of rows with times beyond all clocks, as SQL by hand writes them."""

from __future__ import annotations

import math

import pytest

from feedback.journal.open_rows import open_rows
from feedback.operations import inspection
from feedback.operations.request_reads import get_statuses, list_requests, show_request
from feedback.operations.request_search import search
from feedback.operations.statistics import figures
from feedback.sql_times import nearest
from tests.support.journal import Journal

BEYOND = ("-infinity", "0044-03-15 00:00Z BC", "10000-01-01 00:00Z", "infinity")


@pytest.mark.parametrize("time", BEYOND)
def test_they_are_shown_and_counted_like_their_neighbours(journal: Journal, time: str) -> None:
    made = {"produced_at": time, "created_at": time}
    names = {journal.put("good", "done", run=1), *(
        journal.put(state, state, run=1, finished_at=time, **made)
        for state in ("done", "dead", "in_doubt", "superseded")
    ), journal.put("waits", "waiting", due_at=time, not_before=time, **made)}  # fmt: skip
    read, schema = journal.connection, journal.schema
    assert {row["id"] for row in list_requests(read, {}, 99, schema=schema)} == names
    assert {row["id"] for row in search(read, {}, 99, seconds=20, schema=schema).rows} == names
    assert get_statuses(read, sorted(names), schema=schema).keys() == names
    for name in names:
        assert show_request(read, name, schema=schema) is not None
    (known,) = figures(read, schema=schema).types
    assert math.isfinite(known["oldest"])
    assert math.isfinite(known["overdue"])
    ages = [row.oldest for row in open_rows(read, schema=schema, most=9) or []]
    assert all(age is None or math.isfinite(age) for age in ages)
    assert sum(row["n"] for row in inspection.times_over_time(read, 60, 60, schema=schema))
    assert inspection.coalesced_groups(read, 60, 9, schema=schema).rows == []
    assert inspection.most_resent(read, 60, 9, schema=schema).rows == []


@pytest.mark.parametrize("time", [*BEYOND, "1969-12-31 23:00Z"])
def test_pages_of_them_follow_each_other(journal: Journal, time: str) -> None:
    made = {"created_at": time, "finished_at": time}
    names = [journal.put(f"r{n}", "done", **made) for n in range(4)]
    names.insert(0 if time.startswith(("-", "0", "1969")) else 4, journal.put("new", "done"))
    seen: list[str] = []
    before = None
    for _ in names:
        page = search(journal.connection, {"before": before}, 2, seconds=20, schema=journal.schema)
        seen += [row["id"] for row in page.rows]
        before = page.before
        if before is None:
            break
    assert seen == names


def test_a_place_that_nobody_was_given_is_none_beyond_all_rows(journal: Journal) -> None:
    journal.put("r", "done")
    for year, found in (("0001", []), ("9999", ["r"])):
        asked = {"before": f"{year}-01-01T00:00:00+14:00 r"}
        page = search(journal.connection, asked, 2, seconds=20, schema=journal.schema)
        assert [row["id"] for row in page.rows] == found


def test_no_time_is_none(journal: Journal) -> None:
    text = f"SELECT {nearest('at')} FROM (VALUES (NULL::timestamptz)) AS none (at)"
    assert journal.connection.execute(text).fetchall() == [(None,)]
