"""What is open in an outbox, counted by type, sender and state."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from feedback import outbox
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.database_clock import Between, between
from tests.support.outbox import Outbox

HOUR = 3600.0
OPEN = {
    ("pay", "billing", "unanswered"): (1, 30 * HOUR),
    ("pay", "default", "sent"): (2, 2 * HOUR),
    ("pay", "default", "unsent"): (1, HOUR),
    ("ship", "default", "undeliverable"): (1, 3 * HOUR),
    ("ship", "default", "unsent"): (3, 5 * HOUR),
}
"""(type, sender, state) -> how many, and how long ago the oldest was added."""


@pytest.fixture
def oncepool(stack: Stack, schema: str, outbox_: Outbox) -> Commands:
    """A journal beside the outbox, and nothing else to ask."""
    made = Commands(stack, schema, "")
    made.environ |= {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "",
        "ONCEPOOL_REDIS_URL": "",
        "ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url,
        "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema,
    }
    return made


@pytest.fixture
def opened(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url) as connection:
        for (type_, sender, state), (number, age) in OPEN.items():
            for n in range(number):
                id_ = outbox.add(connection, type_, {}, sender=sender)
                connection.execute(
                    outbox_.sql(
                        "UPDATE :schema.requests SET state = %s,"
                        " created_at = now() - make_interval(secs => %s) WHERE id = %s"
                    ).encode(),
                    [state, age / (n + 1), id_],
                )


def check(rows: list[Any], outbox_: Outbox, asked: Between) -> None:
    made = outbox_.rows(
        "SELECT min(created_at) AS at FROM :schema.requests GROUP BY type, sender, state"
        " ORDER BY type, sender, state"
    )
    assert [(row["type"], row["sender"], row["state"]) for row in rows] == list(OPEN)
    assert [row["n"] for row in rows] == [number for number, _ in OPEN.values()]
    for row, oldest in zip(rows, made, strict=True):
        assert asked.has_age(row["oldest"], oldest["at"], rounded=0.1), row


def test_rows_are_counted_by_type_with_the_age_of_the_oldest(
    oncepool: Commands, opened: None, outbox_: Outbox
) -> None:
    with between(outbox_.connection) as asked:
        told = answer(oncepool("outbox", "stats", "--json"))
    check(told, outbox_, asked)
    head, *lines = oncepool("outbox", "stats").stdout.splitlines()
    assert head.split() == ["type", "sender", "state", "n", "oldest"]
    found = [line.split()[:4] for line in lines if line.strip()]
    assert found == [[*names, str(number)] for names, (number, _) in OPEN.items()]


def test_they_stand_in_the_figures_of_the_whole_beside_the_journals(
    oncepool: Commands, opened: None, outbox_: Outbox
) -> None:
    with between(outbox_.connection) as asked:
        told = answer(oncepool("stats", "--json"))
    check(told["outbox"], outbox_, asked)
    assert told["problems"] == {}
    assert "requests" in told
    shown = oncepool("stats").stdout
    assert all(part in shown.partition("outbox")[2] for part in ("billing", "unanswered", "ship"))


def test_an_outbox_that_is_away_or_not_there_costs_its_own_part(oncepool: Commands) -> None:
    for changes, problem in (
        ({"ONCEPOOL_OUTBOX_DATABASE_URL": "postgresql://u:hid@127.0.0.1:1/d"}, "outbox_database"),
        ({"ONCEPOOL_OUTBOX_SCHEMA": "nobodys"}, "run `oncepool outbox migrate`"),
    ):
        result = oncepool("stats", "--json", **changes)
        told = answer(result)
        assert (result.exit_code, "outbox" in told, "requests" in told) == (0, False, True)
        assert list(told["problems"]) == ["outbox"]
        assert problem in told["problems"]["outbox"]
        assert "hid" not in result.output
