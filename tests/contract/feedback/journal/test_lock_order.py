"""Statements that lock several rows: never in two orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import psycopg
import pytest

from feedback.journal.claims import ClaimRequest, claim
from feedback.journal.migrations import migrate
from feedback.journal.releases import give_back
from feedback.operations.request_actions import By, cancel
from tests.support.journal import Journal
from tests.support.own_database import OwnDatabase
from tests.support.queue import Queue, queue_app

BY = By("somebody", "because")


@pytest.fixture
def journal(own_database: OwnDatabase) -> Iterator[Journal]:
    """In a database of its own, as its deadlocks are counted."""
    migrate(own_database.url, "journal")
    made = Journal(own_database.url, "journal")
    made.run("CREATE TABLE journal.effects (id text)")
    yield made
    made.close()


def deadlocks(journal: Journal) -> int:
    journal.run("SELECT pg_stat_force_next_flush()")
    [row] = journal.rows(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(row["deadlocks"])


def waiting(journal: Journal, id: str, reference: str, **more: Any) -> None:
    journal.put(
        id, "waiting", type="count", coalesce_key=reference, due_at="2035-01-01T00:00:00Z", **more
    )


def test_a_bulk_cancel_and_arrivals_of_the_same_references(journal: Journal) -> None:
    """Cancelling goes by id, and the references stand the other way round."""
    old = {"produced_at": "2020-01-01T00:00:00Z"}
    waiting(journal, "a", "z", **old)
    waiting(journal, "b", "y", **old)
    queue = Queue(queue_app("journal", {}, []), journal.url, "journal")
    queue.run(queue.record("first", "once", {}))  # it has a connection now
    backend = queue.executor._session.connection.info.backend_pid
    new = [queue.record(f"new-{sku}", "count", {"sku": sku}) for sku in "zy"]
    with journal.holding("SELECT FROM {s}.requests WHERE id = 'b' FOR UPDATE"):
        coming = journal.rival(lambda _: queue.run(*new), backend)
        cancelling = journal.rival(lambda c: cancel(c, ["a", "b"], BY, schema="journal"))
    coming.result()
    cancelling.result()
    assert deadlocks(journal) == 0
    assert {journal.get(name)["state"] for name in ("new-z", "new-y")} == {"waiting"}


def test_a_bulk_cancel_and_claims_that_are_given_back(journal: Journal) -> None:
    for name, reference in (("x", "y"), ("y", "z")):
        journal.put(
            name, "waiting", type="count", coalesce_key=reference, due_at="2020-01-01T00:00:00Z",
            produced_at="2026-01-02T00:00:00Z",
        )  # fmt: skip
    found = claim(journal.connection, "here", ClaimRequest(1, 10), schema="journal")
    assert len(found.rows) == 2
    for name, reference in (("b", "y"), ("a", "z")):
        waiting(journal, name, reference)

    def give_back_both(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            give_back(connection, [("x", True), ("y", True)], "journal")

    with journal.holding("SELECT FROM {s}.requests WHERE id = 'b' FOR UPDATE"):
        giving = journal.rival(give_back_both)
        cancelling = journal.rival(lambda c: cancel(c, ["a", "b"], BY, schema="journal"))
    giving.result()
    cancelling.result()
    assert deadlocks(journal) == 0


def test_two_chunks_that_begin_to_wait_under_the_same_references(journal: Journal) -> None:
    """As when an instance takes over many follow-ups at once: each is written in its own order."""
    for name, sku in (("f1", "y"), ("f2", "z"), ("f3", "z"), ("f4", "y")):
        journal.put(
            name, "waiting", type="count", code="follow_up", run=0, used=0, crashes=0, attempt=1,
            payload=orjson.dumps({"sku": sku}), due_at="2020-01-01T00:00:00Z",
        )  # fmt: skip
    one = Queue(queue_app("journal", {}, []), journal.url, "journal")
    two = Queue(queue_app("journal", {}, []), journal.url, "journal")
    f1, f2, f3, f4 = one.claimed("f1", "f2", "f3", "f4")
    backends = []
    for queue in (one, two):
        queue.run(queue.record(f"first-{len(backends)}", "once", {}))
        backends.append(queue.executor._session.connection.info.backend_pid)
    with journal.holding("SELECT FROM {s}.requests WHERE id = 'f2' FOR UPDATE"):
        ahead = journal.rival(lambda _: one.run(f1, f2), backends[0])
        behind = journal.rival(lambda _: two.run(f3, f4), backends[1])
    ahead.result()
    behind.result()
    assert deadlocks(journal) == 0
    states = [journal.get(name)["state"] for name in ("f1", "f2", "f3", "f4")]
    assert sorted(states) == ["superseded", "superseded", "waiting", "waiting"]
