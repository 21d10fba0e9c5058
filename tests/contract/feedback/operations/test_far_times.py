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


def test_no_time_is_none(journal: Journal) -> None:
    text = f"SELECT {nearest('at')} FROM (VALUES (NULL::timestamptz)) AS none (at)"
    assert journal.connection.execute(text).fetchall() == [(None,)]
