"""Moves of requests that the journal has no row of, and their statuses say how they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from consumer.admin.moving import Ending
from consumer.config.settings import Settings
from consumer.gateway.bulk_moves import JournalBulkMover
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.operator_api import answered
from consumer.gateway.operators import JournalOperator
from consumer.gateway.problems import HttpProblem
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.operations.request_actions import By
from feedback.postgres import open_connection
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal

BY = By("ann")
NO_ROW = "as its status says, and has no row in the journal"
STATUSES = [
    ("queued", State.ACCEPTED, "", f"queued is accepted, {NO_ROW} yet"),
    ("computed", State.DONE, "ok", f"computed is done/ok, {NO_ROW} to be moved: it has ended"),
    (
        "away",
        State.FAILED,
        "database_unavailable",
        f"away is failed/database_unavailable, {NO_ROW}; send it again with the same id",
    ),
]


@pytest.fixture
def settings(stack: Stack, schema: str, prefix: str) -> Iterator[Settings]:
    """With the statuses in Redis."""
    store = RedisStatusStore(stack.redis, prefix, timeout=30.0)
    now = datetime.now(UTC)
    for name, state, code, _ in STATUSES:
        store.write([StatusWrite.of(StatusFields(name, "pure", state, 1, code, 1, now))])
    # Of a message that nobody could read: whose id it has may not be its own.
    said = StatusFields("unread", "", State.FAILED, 1, "malformed", 1, now)
    store.write([StatusWrite.of(said)])
    yield Settings(
        database_url=stack.database,
        database_schema=schema,
        redis_url=stack.redis,
        redis_prefix=prefix,
    )
    store.close()


@pytest.fixture
def threads(settings: Settings) -> Iterator[DatabaseThreads]:
    made = DatabaseThreads(
        "database_url", lambda made: open_connection(settings.database_url, "test", made=made), 1
    )
    yield made
    made.close()


@pytest.mark.parametrize("name,state,said", [(one[0], one[1], one[3]) for one in STATUSES])
def test_they_are_refused_with_their_state(
    settings: Settings, threads: DatabaseThreads, name: str, state: State, said: str
) -> None:
    operator = JournalOperator(settings, threads)
    for moved in (operator.cancel(name, BY, 0.2), operator.retry(name, BY)):
        with pytest.raises(HttpProblem) as problem:
            answered(asyncio.run(moved), name)
        assert (problem.value.status_code, problem.value.code) == (409, "refused")
        assert problem.value.members == {"id": name, "state": state}
        assert said in problem.value.detail


@pytest.mark.parametrize("name", ["nobody", "unread"])
def test_what_nobody_knows_is_unknown(
    settings: Settings, threads: DatabaseThreads, name: str
) -> None:
    with pytest.raises(HttpProblem) as problem:
        answered(asyncio.run(JournalOperator(settings, threads).cancel(name, BY, 0.2)), name)
    assert problem.value.status_code == 404


def test_so_they_are_where_many_are_moved(settings: Settings, threads: DatabaseThreads) -> None:
    mover = JournalBulkMover(settings, threads)
    refused = asyncio.run(mover.move("retry", ["queued", "nobody"], BY)).refused
    assert {one.id: one.state for one in refused} == {"queued": State.ACCEPTED, "nobody": None}


NO_REDIS = "redis://127.0.0.1:1"


def test_where_redis_is_away_nobody_is_said_to_be_unknown(
    settings: Settings, threads: DatabaseThreads, journal: Journal
) -> None:
    """Nor to be left alone as it runs: nobody was asked to end it."""
    journal.put("claimed", "running", effect="external", token="i:1", lease_until="2031-01-01")
    away = settings.model_copy(update={"redis_url": NO_REDIS})
    operator = JournalOperator(away, threads)
    for moved in (
        operator.retry("queued", BY),
        operator.cancel("queued", BY, 0.2),
        operator.resolve("nobody", "done", BY, None),
        operator.cancel("claimed", BY, 0.2),
    ):
        with pytest.raises(StoreUnavailable, match="Redis"):
            asyncio.run(moved)

    mover = JournalBulkMover(away, threads)
    (left,) = asyncio.run(mover.move("retry", ["queued"], BY)).refused
    assert "what only Redis knows is not known: Redis" in left.reason
    outcome = asyncio.run(mover.move("cancel", ["claimed", "queued"], BY, Ending(0.2)))
    assert "Redis" in outcome.problem
    assert (outcome.refused, outcome.unsure) == ([], [])
    assert set(outcome.untried) == {"claimed", "queued"}


def test_nor_by_the_command(oncepool: Commands, journal: Journal) -> None:
    journal.put("claimed", "running", effect="external", token="i:1", lease_until="2031-01-01")
    cancel = ("requests", "cancel", "claimed")
    away = oncepool(*cancel, "--json", ONCEPOOL_REDIS_URL=NO_REDIS)
    assert away.exit_code == 1, away.output
    said = answer(away)
    assert (said["moved"], said["refused"], said["untried"]) == ([], [], ["claimed"])
    assert "Redis" in said["problem"]
    unknown = oncepool("requests", "retry", "nobody", ONCEPOOL_REDIS_URL=NO_REDIS)
    assert unknown.exit_code == 4
    assert "and what only Redis knows is not known" in unknown.stderr


@pytest.mark.usefixtures("settings")
def test_the_command_says_the_same(oncepool: Commands) -> None:
    refused = oncepool("requests", "cancel", "queued", "computed", "--wait", "0.2", "--json")
    assert refused.exit_code == 6, refused.output
    assert {one["id"]: one["state"] for one in answer(refused)["refused"]} == {
        "queued": "accepted",
        "computed": "done",
    }
    assert "computed: is done/ok, as its status says" in refused.stderr
    assert oncepool("requests", "cancel", "nobody").exit_code == 4
