"""Retries of what has expired, on real PostgreSQL, by functions and by the gateway's moves."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import orjson
import psycopg
import pytest

from consumer.config.settings import Settings
from consumer.gateway.bulk_moves import JournalBulkMover
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.operators import JournalOperator
from feedback.operations.dead_letters import DeadLetterRef
from feedback.operations.request_actions import By, Resolution, TransitionOutcome, resolve, retry
from tests.support.journal import Journal

BY = By("ann")
REASON = "its ce_expirytime is over: it would be rejected. Submit it anew"


def expiring(time: str) -> str:
    pair = ["ce_expirytime", base64.b64encode(time.encode()).decode()]
    return orjson.dumps([["ce_source", None], pair]).decode()


OVER, AHEAD = expiring("2020-01-01T00:00:00Z"), expiring("9999-01-01T00:00:00Z")


@pytest.fixture
def threads(journal: Journal) -> Iterator[DatabaseThreads]:
    threads = DatabaseThreads(
        "database_url", lambda _: psycopg.connect(journal.url, autocommit=True), 1
    )
    yield threads
    threads.close()


@pytest.mark.parametrize("state", ["dead", "failed", "cancelled"])
def test_what_has_expired_is_not_retried(journal: Journal, state: str) -> None:
    journal.put("late", state, headers=OVER)
    journal.put("unreadable", state, headers=expiring("soon"))  # as of an import
    journal.put("in-time", state, headers=AHEAD)
    before = journal.get("late")

    ids = ["late", "in-time", "unreadable"]
    outcome = retry(journal.connection, ids, BY, schema=journal.schema)

    assert {row.id for row in outcome.moved} == {"in-time", "unreadable"}
    assert outcome.refused == [("late", state, REASON)]
    assert journal.get("late") == before


@pytest.mark.parametrize(
    "pair", [["ce_expirytime", 5], ["ce_expirytime"], ["x", {}], [["x"], None]]
)
def test_a_row_in_a_foreign_form_keeps_none_of_its_neighbours(
    journal: Journal, pair: list[object]
) -> None:
    journal.put("foreign", headers=orjson.dumps([pair, ["ce_time", None]]).decode())
    journal.put("late", headers=OVER)
    journal.put("in-time", headers=AHEAD)

    outcome = retry(journal.connection, ["foreign", "late", "in-time"], BY, schema=journal.schema)

    assert [refusal.id for refusal in outcome.refused] == ["late"]
    assert {write.id for write in (row.status() for row in outcome.moved)} == {"foreign", "in-time"}


def test_a_doubt_about_what_has_expired_is_settled_but_not_by_a_retry(journal: Journal) -> None:
    journal.put("r", "in_doubt", headers=OVER)

    def resolved(resolution: Resolution, run: int | None = None) -> TransitionOutcome:
        runs = None if run is None else {"r": run}
        return resolve(journal.connection, ["r"], resolution, BY, runs=runs, schema=journal.schema)

    assert resolved("retry").refused == [("r", "in_doubt", REASON)]
    assert "is at run 3, not" in resolved("done", run=1).refused[0].reason
    assert [row.state for row in resolved("done").moved] == ["done"]


def test_the_gateway_refuses_it_alone_and_among_many(
    journal: Journal, threads: DatabaseThreads
) -> None:
    settings = Settings(database_schema=journal.schema)
    one, many = JournalOperator(settings, threads), JournalBulkMover(settings, threads)
    journal.put("dead", headers=OVER)
    journal.put("doubted", "in_doubt", headers=OVER)

    async def refused() -> list[object]:
        place = DeadLetterRef("request", "dead")
        answers = [
            await one.retry("dead", BY),
            await one.retry_dead(place, BY, None, None),
            await one.resolve("doubted", "retry", BY, None),
        ]
        moves = [await many.move("retry", ["dead"], BY), await many.move("again", ["doubted"], BY)]
        return [answer.refusal for answer in answers] + [move.refused for move in moves]

    dead, doubted = ("dead", "dead", REASON), ("doubted", "in_doubt", REASON)
    assert asyncio.run(refused()) == [dead, dead, doubted, [dead], [doubted]]
