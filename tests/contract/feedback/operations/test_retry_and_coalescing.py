"""Operators retry requests that coalesce, on real PostgreSQL: the newest of a reference counts."""

from __future__ import annotations

import pytest

from feedback.operations import request_actions
from feedback.operations.request_actions import By, TransitionOutcome, in_retry_order, retry
from tests.support.journal import Journal
from tests.support.moves import refusal

BY = By("ann", "the provider is back")


def retried(journal: Journal, *ids: str) -> TransitionOutcome:
    return retry(journal.connection, ids, BY, schema=journal.schema)


def test_a_retry_gives_way_to_a_newer_one_that_waits(journal: Journal) -> None:
    journal.put("old", coalesce_key="k")
    journal.put("new", "waiting", coalesce_key="k", due_at="now")
    journal.put("other", coalesce_key="k-2")

    outcome = retried(journal, "old", "other")

    assert [m.id for m in outcome.moved] == ["other"]
    assert "gives way to new" in outcome.refused[0].reason


def test_a_retry_gives_way_to_a_newer_one_that_has_been_started(journal: Journal) -> None:
    journal.put("old", coalesce_key="k")
    journal.insert(
        "coalesced", type="payment.create", coalesce_key="k", request_id="new",
        produced_at="2026-01-01T00:00:01Z",
    )  # fmt: skip

    assert "gives way to new" in refusal(retried(journal, "old"))

    journal.run("UPDATE {s}.coalesced SET request_id = 'old'")
    assert [m.state for m in retried(journal, "old").moved] == ["waiting"]


def test_of_two_of_one_reference_the_newer_one_is_retried(journal: Journal) -> None:
    journal.put("a", coalesce_key="k")
    journal.put("b", coalesce_key="k", produced_at="2026-01-02T00:00:00Z")
    journal.put("c")

    outcome = retried(journal, "a", "b", "c")

    assert {m.id for m in outcome.moved} == {"b", "c"}
    assert "gives way to b" in outcome.refused[0].reason


def test_many_are_retried_so_that_the_newest_of_a_reference_comes_first(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are retried in parts: an older one must not wait before the newer one's part comes."""
    monkeypatch.setattr(request_actions, "AT_ONCE", 2)
    for name, key, day in [("a", "k", 2), ("b", "k", 3), ("c", None, 5), ("d", None, 4)]:
        journal.put(name, coalesce_key=key, produced_at=f"2026-01-0{day}T00:00:00Z")
    ids = ["a", "nobody", "b", "c", "d", "a"]
    ordered = in_retry_order(journal.connection, ids, schema=journal.schema)
    assert ordered == ["d", "c", "b", "a", "nobody"]


def test_of_two_of_one_time_the_later_arrival_stays(journal: Journal) -> None:
    """It was started, as `coalesced` says: the earlier one comes no more."""
    journal.put("old", coalesce_key="k", created_at="2026-01-01T00:00:01Z")
    journal.put("new", "done", coalesce_key="k", created_at="2026-01-01T00:00:02Z")
    journal.run(
        "INSERT INTO {s}.coalesced SELECT produced_at, type, 'k', id FROM {s}.requests"
        " WHERE id = 'new'"
    )
    assert "gives way to new" in refusal(retried(journal, "old"))


def test_one_that_begins_to_wait_meanwhile_stops_the_retry(journal: Journal) -> None:
    journal.put("old", coalesce_key="k")
    journal.put("new", "done", coalesce_key="k")
    waits = "UPDATE {s}.requests SET state = 'waiting' WHERE id = 'new'"
    with journal.holding(waits):
        rival = journal.rival(lambda c: retry(c, ["old"], BY, schema=journal.schema))

    assert "gives way to new" in refusal(rival.result())
