"""Rows of which it is hard to write what became of them: they harm nobody but themselves."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.outbox import migrations
from feedback.outbox.migrations import migrate, outbox_migrations
from feedback.outbox.relay import Relay, Route
from feedback.outbox.relay.database import Bounds, RelayDatabase
from feedback.outbox.rows import shard_of
from feedback.postgres import open_connection
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

LONG_KEY = secrets.token_bytes(8_000)


@pytest.fixture
def relayed(stack: Stack, outbox_: Outbox) -> Iterator[Callable[[str], Relay]]:
    with ExitStack() as opened:

        def start(topic: str) -> Relay:
            route = Route(topic, {"bootstrap.servers": stack.kafka})
            return opened.enter_context(
                Relay(outbox_.url, {"default": route}, schema=outbox_.schema)
            )

        yield start


def one_shard() -> list[str]:
    """Keys whose rows are in one batch for sure."""
    wanted = shard_of("default", LONG_KEY)
    numbers = (f"k{n}" for n in range(10_000))
    return [key for key in numbers if shard_of("default", key.encode()) == wanted][:3]


def states(outbox_: Outbox) -> dict[str, tuple[str, str | None]]:
    return {row["id"]: (row["state"], row["code"]) for row in outbox_.rows()}


def test_a_refused_row_with_a_long_key_backs_off_and_its_batch_is_sent_once(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    relayed: Callable[[str], Relay],
) -> None:
    first, second, *_ = one_shard()
    many: list[Any] = [
        ("t", {}, {"request_id": "before", "key": first}),
        ("t", "x" * 300_000, {"request_id": "large", "key": LONG_KEY}),
        ("t", {}, {"request_id": "behind", "key": LONG_KEY}),
        ("t", {}, {"request_id": "after", "key": second}),
    ]
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, many)
    name = topic(**{"max.message.bytes": "200000"})
    relay = relayed(name)
    eventually(lambda: states(outbox_)["large"] == ("unsent", "too_large"), 30)
    # A second batch, that what is behind a long key waits.
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", {}, request_id="later", key=first)
    eventually(lambda: states(outbox_)["later"] == ("sent", None), 30)
    assert states(outbox_)["behind"] == ("unsent", None)
    assert relay.close()
    assert sorted(ids(stack, name)) == ["after", "before", "later"]


def test_rows_that_no_mark_fits_are_dead_letters_and_keep_no_other_from_its_mark(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    relayed: Callable[[str], Relay],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Counts that somebody wrote by hand, as high as they go."""
    odd = {
        "sends": "sends = 2147483647",
        "tries": "tries = 2147483647",
        "failures": "failures = 2147483647, headers = '7'",
    }
    key, *_ = one_shard()
    with psycopg.connect(outbox_.url) as connection:
        for name in odd:
            outbox.add(connection, "t", {}, request_id=f"before-{name}", key=key)
            outbox.add(connection, "t", {}, request_id=name, key=key)
        outbox.add(connection, "t", {}, request_id="last", key=key)
        for name, change in odd.items():
            update = outbox_.sql(f"UPDATE :schema.requests SET {change} WHERE id = '{name}'")
            connection.execute(update.encode())
    name = topic()
    relay = relayed(name)
    eventually(lambda: all(state != "unsent" for state, _ in states(outbox_).values()), 30)
    assert relay.close()
    assert states(outbox_) == {
        **dict.fromkeys(
            ["before-sends", "before-tries", "before-failures", "last"], ("sent", None)
        ),
        **dict.fromkeys(["sends", "tries"], ("unanswered", "not_marked")),
        "failures": ("undeliverable", "not_marked"),
    }
    there = [*(f"before-{name}" for name in odd), "last", "sends", "tries"]
    assert sorted(ids(stack, name)) == sorted(there)
    for row in odd:
        assert f"request {row} is a dead letter of the outbox" in caplog.text
    # Their answers may come.
    waiting = outbox_.rows("SELECT id FROM :schema.requests WHERE sent_at IS NOT NULL")
    assert {row["id"] for row in waiting} == set(there)


def test_an_outbox_that_was_made_before_takes_long_keys_once_it_is_upgraded(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, before = outbox_.schema, outbox_migrations()[:5]
    outbox_.run("DROP SCHEMA :schema CASCADE")
    put_off = "UPDATE :schema.requests SET next_at = now() + interval '1 hour'"
    with psycopg.connect(outbox_.url) as connection:
        with monkeypatch.context() as patched:
            patched.setattr(migrations, "outbox_migrations", lambda: before)
            migrate(connection, schema, [])
        outbox.add(connection, "t", {}, request_id="short", key="k")
        connection.execute(outbox_.sql(put_off).encode())
        outbox.add_many(
            connection,
            [("t", {}, {"request_id": "behind", "key": "k"}), ("t", {}, {"key": LONG_KEY})],
        )
        connection.commit()
        assert migrate(connection, schema, [])[:1] == ["0006_long_keys"]
    outbox_.run(put_off + " WHERE id <> 'behind'")
    with open_connection(outbox_.url, "oncepool relay") as relay:
        database = RelayDatabase(relay, schema, "default")
        database.prepare()
        with database.transaction():
            assert database.claim(Bounds()) == []  # behind what backs off
