"""Properties of librdkafka's among a route's that would have had its rows stay, or go for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.outbox.relay import Relay, Route
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

STATES = "SELECT id, state FROM :schema.requests ORDER BY seq"


@contextmanager
def relay(stack: Stack, outbox_: Outbox, topic: str, given: Mapping[str, Any]) -> Iterator[Relay]:
    kafka = {"bootstrap.servers": stack.kafka, **given}
    with Relay(outbox_.url, {"default": Route(topic, kafka)}, schema=outbox_.schema) as made:
        yield made


def add(outbox_: Outbox, *wanted: str, payload: str = "x") -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", payload, {"request_id": id_}) for id_ in wanted])


def sent(outbox_: Outbox) -> list[str]:
    return [row["id"] for row in outbox_.rows(STATES) if row["state"] == "sent"]


def refused(outbox_: Outbox) -> list[tuple[str, str]]:
    query = "SELECT id, code FROM :schema.requests WHERE failures > 0 ORDER BY seq"
    return [(row["id"], row["code"]) for row in outbox_.rows(query)]


def test_a_row_larger_than_the_producers_queue_is_too_large_and_keeps_no_other(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(**{"max.message.bytes": "5000000"})
    small = [f"small-{n}" for n in range(50)]
    add(outbox_, *small[:10])
    add(outbox_, "large", payload="x" * 2_000_000)
    add(outbox_, *small[10:])
    with (
        caplog.at_level(logging.WARNING, "oncepool.relay"),
        relay(stack, outbox_, name, {"queue.buffering.max.kbytes": 1024}),
    ):
        eventually(lambda: sent(outbox_) == small, message=lambda: str(outbox_.rows(STATES)))
        eventually(lambda: refused(outbox_) == [("large", "too_large")])
    assert "large: too_large" in caplog.text
    assert sorted(ids(stack, name)) == sorted(small)


def test_more_rows_than_the_producers_queue_takes_at_once_all_go(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str]
) -> None:
    name = topic()
    numbers = [f"{n:03d}" for n in range(200)]
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(
            connection,
            [("t", {}, {"request_id": id_, "key": f"k{id_[-1]}"}) for id_ in numbers],
        )
    with relay(stack, outbox_, name, {"queue.buffering.max.messages": 7}):
        eventually(lambda: sent(outbox_) == numbers, message=lambda: str(outbox_.rows(STATES)))
    for last in "0123456789":
        assert [id_ for id_ in ids(stack, name) if id_[-1] == last] == numbers[int(last) :: 10]


def test_reports_come_whatever_they_were_to_be_of(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str]
) -> None:
    """`delivery.report.only.error`: what is there was sent again, for ever."""
    name = topic()
    add(outbox_, "r1", "r2")
    with relay(stack, outbox_, name, {"delivery.report.only.error": True}):
        eventually(lambda: sent(outbox_) == ["r1", "r2"], 30)
    assert sorted(ids(stack, name)) == ["r1", "r2"]


def test_a_callback_that_raises_ends_no_turn(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """As a program's exporter of metrics may, whose server is away."""
    called = threading.Event()

    def raises(_: str) -> None:
        called.set()
        raise ConnectionError("the server is away")

    name = topic()
    given = {"statistics.interval.ms": 5, "stats_cb": raises}
    with relay(stack, outbox_, name, given) as one:
        for n in range(20):
            add(outbox_, f"r{n}")
            eventually(lambda n=n: len(sent(outbox_)) == n + 1)  # type: ignore[misc]
            if n >= 3 and called.is_set():
                break
        assert called.is_set()
        assert [state.database for state in one.states()] == [None]
    assert len(ids(stack, name)) == n + 1
    assert "unexpected error" not in caplog.text
    assert "stats_cb raised" in caplog.text
