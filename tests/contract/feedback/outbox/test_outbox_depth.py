"""What is open of an outbox, counted on a real PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg

from feedback import outbox
from feedback.outbox.relay.depth import OutboxDepth, outbox_depth
from tests.support.outbox import Outbox


def depth(outbox_: Outbox, sender: str = "default", most: int = 100) -> list[OutboxDepth]:
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        return outbox_depth(connection, outbox_.schema, sender, most=most)


def numbers(found: list[OutboxDepth]) -> dict[str, int]:
    return {row.state: row.number for row in found}


def fill(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url) as connection:
        many: list[Any] = [("t", {}, {"request_id": f"id-{n}"}) for n in range(6)]
        outbox.add_many(connection, many)
        outbox.add(connection, "t", {}, request_id="bill", sender="billing")
    outbox_.run("UPDATE :schema.requests SET created_at = now() - interval '5 min'")
    outbox_.run(
        "UPDATE :schema.requests SET state = 'sent', sent_at = now() - interval '2 min'"
        " WHERE id IN ('id-0', 'id-1')"
    )
    outbox_.run("UPDATE :schema.requests SET state = 'undeliverable' WHERE id = 'id-2'")


def test_nothing_is_open_of_an_empty_one(outbox_: Outbox) -> None:
    assert depth(outbox_) == [
        OutboxDepth("unsent", 0, 0.0), OutboxDepth("sent", 0, 0.0), OutboxDepth("dead", 0, 0.0),
    ]  # fmt: skip


def test_rows_are_counted_by_sender_and_state_with_the_age_of_the_oldest(outbox_: Outbox) -> None:
    fill(outbox_)
    found = depth(outbox_)
    assert numbers(found) == {"unsent": 3, "sent": 2, "dead": 1}
    ages = {row.state: row.oldest for row in found}
    assert 300 <= ages["unsent"] < 420
    assert 120 <= ages["sent"] < 240
    assert 300 <= ages["dead"] < 420
    assert numbers(depth(outbox_, "billing")) == {"unsent": 1, "sent": 0, "dead": 0}


def test_counting_ends_at_the_bound(outbox_: Outbox) -> None:
    fill(outbox_)
    assert numbers(depth(outbox_, most=2)) == {"unsent": 2, "sent": 2, "dead": 1}
