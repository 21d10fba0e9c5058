"""Rows that are larger than their topic takes, or than a relay could read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from feedback import outbox
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import MOST_FAILURES, ClaimedRow, RowRefusal
from feedback.outbox.relay.database import RelayDatabase
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.loop import SenderLoop
from feedback.outbox.relay.turns import SendTurns
from feedback.postgres import Connection, open_connection
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.waiting import eventually

TAKES = 2_000
"""Bytes of a message."""


class Checked(TopicSender):
    """Keeps what it was given to check."""

    def __init__(self, topic: str, stack: Stack) -> None:
        super().__init__(topic, {"bootstrap.servers": stack.kafka})
        self.rows: dict[str, ClaimedRow] = {}
        self.refusals: dict[str, str] = {}

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        """As TopicSender has it."""
        refusal = super().check(row)
        self.rows[row.id] = row
        if refusal is not None:
            self.refusals[row.id] = refusal.code
        return refusal


@pytest.fixture
def checked(stack: Stack, topic: Callable[..., str]) -> Iterator[Checked]:
    sender = Checked(topic(**{"max.message.bytes": str(TAKES)}), stack)
    yield sender
    sender.close()


@pytest.fixture
def connection(outbox_: Outbox) -> Iterator[Connection]:
    with open_connection(outbox_.url, "test") as made:
        yield made


def add(outbox_: Outbox, *wanted: tuple[str, str]) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(
            connection, [("t", {}, {"request_id": id_, "key": key}) for id_, key in wanted]
        )


def sent(outbox_: Outbox) -> list[str]:
    query = "SELECT id FROM :schema.requests WHERE state = 'sent' ORDER BY seq"
    return [row["id"] for row in outbox_.rows(query)]


GROWN = {
    "payload": f"repeat('x', {10 * TAKES})::bytea",
    "key": f"repeat('x', {10 * TAKES})::bytea",
    "type": f"repeat('x', {10 * TAKES})",
    "headers": f"jsonb_build_array(jsonb_build_array('h', repeat('aaaa', {10 * TAKES})))",
}


@pytest.mark.parametrize("column", GROWN)
def test_of_a_row_that_is_too_large_nothing_large_is_read(
    outbox_: Outbox, connection: Connection, checked: Checked, column: str
) -> None:
    """And it takes no room from the others of its batch."""
    add(outbox_, ("large", "k"), ("behind", "k"), ("other", "o"))
    outbox_.run(f"UPDATE :schema.requests SET {column} = {GROWN[column]} WHERE id = 'large'")
    database = RelayDatabase(connection, outbox_.schema, "default")
    database.prepare()
    turns = SendTurns("default", checked)
    turns.turn(database)
    row = checked.rows["large"]
    assert checked.refusals == {"large": "too_large"}
    assert (row.payload, row.headers, row.type) == (b"", (), "")
    assert row.size > TAKES
    assert row.key == (None if column == "key" else b"k")
    assert sent(outbox_) == (["behind", "other"] if column == "key" else ["other"])


def test_a_row_that_fits_is_read_whole_however_its_headers_are_written(
    outbox_: Outbox, connection: Connection, checked: Checked
) -> None:
    """Their JSON takes more bytes than the message will have."""
    add(outbox_, ("many", "k"))
    outbox_.run("""UPDATE :schema.requests SET headers =
        (SELECT jsonb_agg(jsonb_build_array('h', 'eHg=')) FROM generate_series(1, 300))""")
    [length] = outbox_.rows("SELECT octet_length(headers::text) AS n FROM :schema.requests")
    assert length["n"] > TAKES
    database = RelayDatabase(connection, outbox_.schema, "default")
    database.prepare()
    SendTurns("default", checked).turn(database)
    assert len(checked.rows["many"].headers) == 300
    assert sent(outbox_) == ["many"]


@pytest.mark.long
def test_a_row_that_no_answer_of_the_server_could_hold_keeps_no_other(
    outbox_: Outbox, checked: Checked
) -> None:
    """It is refused as any that is too large, and ends as a dead letter."""
    add(outbox_, ("large", "k"), ("behind", "k"), ("other", "o"))
    outbox_.run("""UPDATE :schema.requests
        SET payload = convert_to(repeat('x', 600 * 1024 * 1024), 'UTF8') WHERE id = 'large'""")
    relay = SenderLoop(
        outbox_.url, outbox_.schema, "default", checked, bounds=None, policy=AnswerPolicy()
    )
    relay.start()
    try:
        for failures in range(1, MOST_FAILURES):
            eventually(lambda n=failures: failed(outbox_) == n)  # type: ignore[misc]
            outbox_.run("UPDATE :schema.requests SET next_at = now() WHERE failures > 0")
        eventually(lambda: sent(outbox_) == ["behind", "other"])
    finally:
        relay.stop()
        assert relay.join(60)
    query = "SELECT state, code, error FROM :schema.requests WHERE id = 'large'"
    [large] = outbox_.rows(query)
    assert (large["state"], large["code"]) == ("undeliverable", "too_large")
    assert "6291" in large["error"]


def failed(outbox_: Outbox) -> int:
    query = "SELECT failures FROM :schema.requests WHERE id = 'large'"
    return int(outbox_.rows(query)[0]["failures"])
