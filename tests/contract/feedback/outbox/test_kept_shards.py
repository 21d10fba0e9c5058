"""Shards that somebody keeps locked, and who is not taken for one."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from feedback import outbox
from feedback.outbox.relay import Relay, Route, kept_shards
from feedback.outbox.relay.database import Bounds, RelayDatabase
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.waiting import eventually


def add(outbox_: Outbox, *wanted: str) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", {}, {"request_id": id_}) for id_ in wanted])


def test_what_a_session_keeps_locked_is_told_until_it_is_free(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(kept_shards, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(kept_shards, "KEPT_AFTER", 1.0)
    route = Route(topic(), {"bootstrap.servers": stack.kafka})
    with Relay(outbox_.url, {"default": route}, schema=outbox_.schema) as relay:
        eventually(lambda: outbox_.rows("SELECT FROM :schema.shards"), 60)
        with psycopg.connect(outbox_.url, application_name="psql") as other:
            other.execute(outbox_.sql("SELECT FROM :schema.shards FOR UPDATE").encode())
            add(outbox_, *map(str, range(20)))
            eventually(lambda: relay.states()[0].kept, 60)
            assert f"pid {other.info.backend_pid} psql" in str(relay.states()[0].kept)
            assert "kept locked by another session" in caplog.text
            assert {row["state"] for row in outbox_.rows()} == {"unsent"}
            other.rollback()
        eventually(lambda: {row["state"] for row in outbox_.rows()} == {"sent"}, 60)
        eventually(lambda: relay.states()[0].kept is None, 60)


def test_only_what_is_due_counts_and_a_relays_next_batch_is_another_transaction(
    outbox_: Outbox,
) -> None:
    with (
        psycopg.connect(outbox_.url, autocommit=True) as first,
        psycopg.connect(outbox_.url, autocommit=True) as second,
    ):
        works = RelayDatabase(first, outbox_.schema, "default")
        looks = RelayDatabase(second, outbox_.schema, "default")
        works.prepare()
        with psycopg.connect(outbox_.url) as other:
            other.execute(outbox_.sql("SELECT FROM :schema.shards FOR UPDATE").encode())
            assert looks.locked() == []
            other.rollback()
        add(outbox_, "a")
        assert looks.locked() == []
        transactions = set()
        for _ in range(2):
            with works.transaction():
                assert works.claim(Bounds())
                [one] = looks.locked()
                transactions.add(one.transaction)
        assert len(transactions) == 2
