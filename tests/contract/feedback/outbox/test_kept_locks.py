"""What operators and a starting relay ask of an outbox that somebody else has locked, and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from consumer.config.settings import Settings
from consumer.gateway.pages.advice import Notice, notices
from consumer.gateway.pages.services import Services
from feedback import outbox
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal
from tests.support.outbox import Outbox
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually

ADVICE = "end transactions that stay open, then try again"


@contextmanager
def holding(outbox_: Outbox, statement: str) -> Iterator[None]:
    """An idle session, as a terminal that somebody has left open."""
    with psycopg.connect(outbox_.url) as other:
        other.execute(outbox_.sql(statement).encode())
        yield
        other.rollback()


def dead(outbox_: Outbox, *ids: str) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", {}, {"request_id": id_}) for id_ in ids])
    outbox_.run("UPDATE :schema.requests SET state = 'undeliverable', code = 'topic_missing'")


def environment(outbox_: Outbox) -> dict[str, str]:
    return {
        "ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url,
        "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema,
    }


@pytest.mark.parametrize("doing", ["retry", pytest.param("drop", marks=pytest.mark.long)])
def test_a_move_of_a_locked_row_ends_and_says_what_to_do(
    outbox_: Outbox, stack: Stack, doing: str
) -> None:
    """Nothing of it stands, also not of the rows before."""
    dead(outbox_, "a", "b", "c")
    oncepool, place = Commands(stack, "", ""), environment(outbox_)
    with holding(outbox_, "SELECT FROM :schema.requests WHERE id = 'b' FOR UPDATE"):
        result = oncepool("outbox", doing, "a", "b", "c", **place)
    assert result.exit_code == 1
    assert ADVICE in result.stderr
    assert "not known whether" not in result.stderr
    assert [row["state"] for row in outbox_.rows()] == ["undeliverable"] * 3
    moved = answer(oncepool("outbox", doing, "a", "b", "c", "--json", **place))["moved"]
    assert [row["id"] for row in moved] == ["a", "b", "c"]


@pytest.mark.long
def test_a_move_of_a_locked_request_of_the_journal_does_too(stack: Stack, journal: Journal) -> None:
    journal.put("r1", "dead")
    oncepool = Commands(stack, journal.schema, "none")
    with journal.holding("SELECT FROM {s}.requests FOR UPDATE"):
        result = oncepool("requests", "retry", "r1")
    assert result.exit_code == 1
    assert ADVICE in result.stderr
    assert journal.get("r1")["state"] == "dead"


def test_a_look_at_a_locked_outbox_ends_and_advises_what_helps(outbox_: Outbox) -> None:
    """PostgreSQL runs: nobody is to start it, or to correct its URL."""
    dead(outbox_, "a")
    settings = Settings(outbox_database_url=outbox_.url, outbox_schema=outbox_.schema)

    async def told() -> list[Notice]:
        services = Services(settings, None)
        found: list[Notice] = []
        with holding(outbox_, "LOCK TABLE :schema.requests IN ACCESS EXCLUSIVE MODE"):
            async with asyncio.timeout(60):
                while not any(ADVICE in one.what for one in found):
                    found = notices((await services.whole()).look)
                    assert not any(one.advice for one in found)
        return found

    [one] = asyncio.run(told())
    assert "start PostgreSQL" not in one.what


def test_a_relay_starts_though_its_look_at_the_tables_is_kept_waiting(
    outbox_: Outbox, stack: Stack, topic: Callable[..., str], tmp_path: Path
) -> None:
    place = environment(outbox_) | {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": topic(),
    }
    with (
        holding(outbox_, "LOCK TABLE :schema.senders IN ACCESS EXCLUSIVE MODE"),
        RelayProcess(place, tmp_path / "log") as relay,
    ):
        eventually(lambda: relay.get("/livez")[0] == 200, 60, lambda: relay.log)
        assert "not looked at yet" in relay.log
        assert ADVICE in relay.log
        assert relay.stop() == 0
