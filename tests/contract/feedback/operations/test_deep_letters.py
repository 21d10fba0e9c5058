"""Dead letters that are read deeper than they are written, on real PostgreSQL."""

from __future__ import annotations

import base64

import orjson

from feedback.operations.dead_letter_actions import retry_letter
from feedback.operations.request_actions import By, Moved, Refusal
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal

EVENT = b'{"specversion":"1.0","id":"%s","type":"x","data":%s}'
DEEP = b"[" * 1_000 + b"]" * 1_000


def test_one_that_is_nested_too_deeply_stops_no_other(
    journal: Journal, stack: Stack, prefix: str
) -> None:
    pairs = [["content-type", "application/cloudevents+json"], ["ce_type", "payment.create"]]
    headers = [[name, base64.b64encode(text.encode()).decode()] for name, text in pairs]
    for n, (name, data) in enumerate([(b"first", b"1"), (b"deep", DEEP), (b"last", b"1")]):
        journal.insert(
            "dead_letters", topic="requests", partition=0, kafka_offset=n,
            payload=EVENT % (name, data), produced_at="2026-05-01T12:00:00Z", reason="malformed",
            detail="was not read", headers=orjson.dumps(headers).decode(),
        )  # fmt: skip
    [_, deep, _] = [
        row["id"] for row in journal.rows("SELECT id FROM {s}.dead_letters ORDER BY id")
    ]

    oncepool = Commands(stack, journal.schema, prefix)
    ended = oncepool("dead-letters", "retry", "--reason", "malformed", "--yes", "--json")
    told = answer(ended)

    # Newer Pythons write what they read: there it is a request as any other.
    assert {row["id"] for row in told["moved"]} - {"deep"} == {"first", "last"}, ended.output
    assert {str(row["id"]) for row in told["refused"]} <= {str(deep)}
    assert len(told["moved"]) + len(told["refused"]) == 3
    again = retry_letter(journal.connection, deep, By("ann"), id="new", schema=journal.schema)
    assert isinstance(again, Refusal | Moved)
    if told["refused"]:
        assert isinstance(again, Refusal)
        assert "is still no request" in again.reason
