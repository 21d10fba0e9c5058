"""Requests that a handler writes beside its effects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from feedback.journal.rows import headers_of
from tests.support.queue import Queue


def test_follow_ups_stand_and_fall_with_their_request(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["bad"] = ValueError("no")
    queue.run(queue.record("a", "order", {}), queue.record("bad", "order", {}))
    rows = queue.rows()
    first = queue.told("a")["result"]
    assert rows == {
        "a": ("done", "ok"), "bad": ("failed", "handler_error"),
        first: ("waiting", "follow_up"), "named": ("waiting", "follow_up"),
    }  # fmt: skip
    asked = queue.query(f"SELECT id FROM {queue.schema}.requests WHERE asked_by = 'a' ORDER BY id")
    assert asked == sorted([(first,), ("named",)])
    assert queue.told(first)["state"] == "waiting"
    assert queue.row("named")["due_at"] == datetime(2035, 1, 1, tzinfo=UTC)
    queue.run(queue.record("c", "order", {}))
    assert len(queue.rows()) == 6, "one that is there already is not asked for twice"
    queue.again(first)
    assert (queue.row(first)["state"], queue.row(first)["run"]) == ("done", 1)


def test_a_follow_up_belongs_to_the_trace_that_asked_for_it(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
             "tracestate": "vendor=\u00e9"}  # fmt: skip
    queue.run(queue.record("a", "order", {}, **trace, other="not of it"))
    (stored,) = queue.query(f"SELECT headers::text FROM {queue.schema}.requests WHERE id = 'named'")
    assert headers_of(stored[0]) == [(name, value.encode()) for name, value in trace.items()]


def test_a_follow_up_waits_for_its_own_time_or_coalesces(queue: Queue, ran: list[Any]) -> None:
    queue.run(queue.record("p", "recount", {}))
    first, second, timed = orjson.loads(queue.query(
        f"SELECT result::text FROM {queue.schema}.requests WHERE id = 'p'"
    )[0][0])  # fmt: skip
    queue.again(first, second)
    states = {queue.row(name)["state"] for name in (first, second)}
    assert states == {"waiting", "superseded"}
    queue.again(timed)
    assert queue.row(timed)["state"] == "done", "a time of its own never coalesces"
