"""Requests added over every kind of connection, judged by what stands in the tables."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.errors import OutboxMissing, RequestIdInUse, UnknownSender
from feedback.outbox.connections import run
from feedback.outbox.migrations import migrate
from feedback.outbox.steps import types_of
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.outbox_kinds import KINDS, Opened, with_connection
from tests.support.own_database import OwnDatabase

TYPE = "payment.create"
FOR_YEARS = timedelta(days=11 * 366)


async def done(answer: Any) -> Any:
    """What a call answers, or what is to be awaited of it."""
    return await answer if inspect.isawaitable(answer) else answer


@pytest.mark.parametrize("kind", KINDS)
def test_requests_stand_or_fall_with_their_transaction(outbox_: Outbox, kind: str) -> None:
    """Over one connection: rolled back, committed, and errors after which the rest is committed."""
    outbox_.run("CREATE TABLE :schema.orders (n int)")
    insert = outbox_.sql("INSERT INTO :schema.orders VALUES ({})")

    async def script(db: Opened) -> None:
        await done(db.write(insert.format(1)))
        await done(outbox.add(db.given, TYPE, {"order": 1}))
        await done(db.rollback())

        await done(db.write(insert.format(2)))
        assert (
            await done(outbox.add(db.given, TYPE, {"order": 2}, request_id="order-2")) == "order-2"
        )
        await done(db.commit())

        await done(db.write(insert.format(3)))
        new, used = ((TYPE, {"order": 3}, {"request_id": f"order-{n}"}) for n in (3, 2))
        with pytest.raises(RequestIdInUse, match="'order-2'"):
            await done(outbox.add_many(db.given, [new, used]))
        with pytest.raises(UnknownSender, match="'billing', 'default'"):
            await done(outbox.add(db.given, TYPE, {}, sender="biling"))
        with pytest.raises(ValueError, match="payload"):
            await done(outbox.add(db.given, TYPE, {"amount": float("nan")}))
        with pytest.raises(ValueError, match="more than ten years ahead"):
            await done(outbox.add_many(db.given, [new, (TYPE, {}, {"delay": FOR_YEARS})]))
        many = [(TYPE, {"order": n}, {"request_id": f"order-{n}", "key": "a"}) for n in (2, 4, 5)]
        ids = await done(outbox.add_many(db.given, many))
        assert ids == ["order-2", "order-4", "order-5"]
        await done(db.commit())

    with_connection(outbox_.url, kind, script)

    assert [row["n"] for row in outbox_.rows("SELECT n FROM :schema.orders ORDER BY n")] == [2, 3]
    rows = outbox_.rows()
    assert [row["id"] for row in rows] == ["order-2", "order-4", "order-5"]
    assert [row["payload"] for row in rows] == [b'{"order":2}', b'{"order":4}', b'{"order":5}']
    assert [row["key"] for row in rows] == [None, b"a", b"a"]


def test_a_connection_may_have_cursors_with_another_style_of_parameters(outbox_: Outbox) -> None:
    async def add_async() -> None:
        async with await psycopg.AsyncConnection.connect(
            outbox_.url, cursor_factory=psycopg.AsyncRawCursor
        ) as connection:
            await outbox.add(connection, TYPE, {}, request_id="async")

    with psycopg.connect(outbox_.url, cursor_factory=psycopg.RawCursor) as connection:
        outbox.add(connection, TYPE, {}, request_id="sync")
    asyncio.run(add_async())
    assert {row["id"] for row in outbox_.rows()} == {"sync", "async"}


def test_nothing_of_the_callers_cursor_is_lost(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT generate_series(1, 3)")
        assert cursor.fetchone() == (1,)
        outbox.add(cursor, TYPE, {})
        assert cursor.fetchall() == [(2,), (3,)]


def test_the_view_shows_what_is_open_and_a_commit_wakes_who_listens(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url, autocommit=True) as listener:
        listener.execute(outbox_.sql("LISTEN :schema").encode())
        with psycopg.connect(outbox_.url) as connection:
            outbox.add(connection, TYPE, "text", request_id="r", sender="billing", reference="x")
            assert list(listener.notifies(timeout=0.1)) == []
        [notice] = listener.notifies(timeout=60, stop_after=1)
    assert notice.channel == outbox_.schema

    [row] = outbox_.rows("SELECT * FROM :schema.all_requests")
    assert (row["id"], row["type"], row["sender"], row["reference"]) == ("r", TYPE, "billing", "x")
    assert (row["state"], row["sends"], row["sent_at"], row["settled_at"]) == (
        "unsent", 0, None, None,
    )  # fmt: skip
    assert (row["code"], row["result"]) == (None, None)


def test_an_id_that_is_finished_is_not_sent_again(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, TYPE, {"order": 1}, request_id="r")
        connection.execute(
            outbox_.sql(
                "WITH gone AS (DELETE FROM :schema.requests RETURNING *)"
                " INSERT INTO :schema.finished (seq, created_at, settled_at, sends, id, type,"
                " sender, state, fingerprint)"
                " SELECT seq, created_at, now(), 1, id, type, sender, 'done', fingerprint FROM gone"
            ).encode()
        )
        assert outbox.add(connection, TYPE, {"order": 1}, request_id="r") == "r"
        with pytest.raises(RequestIdInUse):
            outbox.add(connection, TYPE, {"order": 2}, request_id="r")
    assert outbox_.rows() == []


def test_an_id_with_an_open_row_and_a_finished_one_has_one_type(outbox_: Outbox) -> None:
    """As of one that was added while its row ended."""
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, TYPE, {}, request_id="again")
    outbox_.run(
        "INSERT INTO :schema.finished (seq, created_at, settled_at, sends, id, type, sender, state,"
        " fingerprint) SELECT seq, now(), now(), 1, id, type, sender, 'done', fingerprint"
        " FROM :schema.requests"
    )
    with psycopg.connect(outbox_.url) as connection:
        assert run(connection, types_of("again", outbox_.schema), outbox_.schema) == [TYPE]


def test_of_two_who_add_one_id_at_once_one_writes_it(outbox_: Outbox) -> None:
    first, second = (psycopg.connect(outbox_.url) for _ in range(2))
    with first, second:
        outbox.add(first, TYPE, {}, request_id="r")
        second.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            outbox.add(second, TYPE, {}, request_id="r")  # waits for what becomes of the first
        second.rollback()
        first.commit()
        assert outbox.add(second, TYPE, {}, request_id="r") == "r"
        with pytest.raises(RequestIdInUse):
            outbox.add(second, TYPE, {"other": 1}, request_id="r")
    assert len(outbox_.rows()) == 1


@pytest.mark.parametrize("kind", [k for k in KINDS if k.endswith("connection")])
def test_missing_tables_are_named(
    stack: Stack, empty_schema: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)

    async def script(db: Opened) -> None:
        with pytest.raises(OutboxMissing, match="run `oncepool outbox migrate`"):
            await done(outbox.add(db.given, TYPE, {}))
        await done(db.rollback())

    with_connection(stack.database, kind, script)


def test_an_outbox_of_an_older_version_is_named(outbox_: Outbox) -> None:
    outbox_.run("DROP FUNCTION :schema.add_requests")
    with psycopg.connect(outbox_.url) as connection:
        with pytest.raises(OutboxMissing, match="run `oncepool outbox migrate`"):
            outbox.add(connection, TYPE, {})
        connection.rollback()


def test_a_database_without_an_encoding_takes_requests(stack: Stack, outbox_: Outbox) -> None:
    """Whose texts psycopg gives as bytes."""
    with OwnDatabase(stack.database, "SQL_ASCII") as made:
        with psycopg.connect(made.url) as connection:
            migrate(connection, outbox_.schema, [])
            for _ in range(2):
                assert outbox.add(connection, TYPE, {"order": 1}, request_id="order-1") == "order-1"
            with pytest.raises(RequestIdInUse):
                outbox.add(connection, TYPE, {"order": 2}, request_id="order-1")
            with pytest.raises(UnknownSender):
                outbox.add(connection, TYPE, {}, sender="nobody")
        with psycopg.connect(made.url) as connection:
            found = connection.execute(f"SELECT count(*) FROM {outbox_.schema}.requests".encode())
            assert found.fetchall() == [(1,)]
