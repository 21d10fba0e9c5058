"""What a gateway writes into an outbox."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from consumer.gateway.database import DatabaseThreads
from consumer.gateway.sending import OutboxSender
from consumer.gateway.sources import outbox_source
from feedback import outbox
from feedback.errors import OutboxError, OutboxMissing, RequestIdInUse
from feedback.outbox.checks import refuse_closed
from feedback.outbox.dead_letters import OutboxFilter, OutboxOperator
from feedback.postgres import open_connection
from feedback.status.status import Status
from tests.support.outbox import Outbox


def test_a_payload_that_cant_be_compared_is_that_of_the_same_request(outbox_: Outbox) -> None:
    """Written anew, as its handler's own fingerprint is not known here; under its type alone."""
    threads = DatabaseThreads(
        "outbox_database_url", lambda _: open_connection(outbox_.url, "oncepool gateway"), 1
    )
    no_statuses: Any = None
    sender = OutboxSender(threads, outbox_.schema, no_statuses, ["own", "other"])

    async def script() -> None:
        for type_ in ("own", "compared"):
            await sender.send(type_, b'{"at":1}', {"request_id": type_})
        assert (await sender.send("own", b'{"at":2}', {"request_id": "own"})).id == "own"
        for type_, id_ in (("compared", "compared"), ("other", "own"), ("own", "compared")):
            with pytest.raises(RequestIdInUse):
                await sender.send(type_, b'{"at":2}', {"request_id": id_})

    asyncio.run(script())
    threads.close()
    assert [(row["id"], bytes(row["payload"])) for row in outbox_.rows()] == [
        ("own", b'{"at":1}'),
        ("compared", b'{"at":1}'),
    ]


def test_nobody_waits_for_what_an_operator_has_dropped(outbox_: Outbox) -> None:
    """Nor for what consumers have refused as another request's copy: nothing is sent any more."""
    rows = {
        "unsent": ("undeliverable", "topic_missing", "NULL"),
        "unanswered": ("unanswered", "no_answer", "now()"),
        "conflict": ("undeliverable", "conflict", "now()"),
    }
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        for name, (state, code, sent_at) in rows.items():
            outbox.add(connection, "pay", {}, request_id=name)
            outbox_.run(
                f"UPDATE :schema.requests SET state = '{state}', code = '{code}',"
                f" sent_at = {sent_at} WHERE id = '{name}'"
            )
        assert set(_known(outbox_, list(rows))) == {
            ("accepted", "undeliverable"),
            ("accepted", "unanswered"),
        }
        list(OutboxOperator(connection, outbox_.schema).drop(OutboxFilter()))
    assert _known(outbox_, list(rows)) == [
        ("cancelled", "dropped"),
        ("in_doubt", "dropped"),
        ("rejected", "conflict"),
    ]


def _known(outbox_: Outbox, ids: list[str]) -> list[tuple[str, str]]:
    """State and code of each, as a gateway has them from its outbox."""
    threads = DatabaseThreads(
        "outbox_database_url", lambda _: open_connection(outbox_.url, "oncepool gateway"), 1
    )
    found = asyncio.run(_read(threads, outbox_.schema, ids))
    threads.close()
    return [(str(one.state), one.code) for one in found if one is not None]


async def _read(threads: DatabaseThreads, schema: str, ids: list[str]) -> list[Status | None]:
    return await outbox_source(threads, schema).read(ids)


def test_an_outbox_is_ready_where_requests_can_be_added(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        refuse_closed(connection, outbox_.schema)
        with pytest.raises(OutboxMissing, match="oncepool outbox migrate"):
            refuse_closed(connection, "no_such_schema")
        connection.execute("SET ROLE pg_monitor")  # who may do nothing here
        with pytest.raises(OutboxError, match=r"may not add requests.*GRANT USAGE ON SCHEMA"):
            refuse_closed(connection, outbox_.schema)
        connection.execute("RESET ROLE")
        outbox_.run("INSERT INTO :schema.schema_version (version, name) VALUES (99, 'newer')")
        refuse_closed(connection, outbox_.schema)
        outbox_.run("DELETE FROM :schema.schema_version WHERE version > 4")
        outbox_.run("DROP FUNCTION :schema.add_requests(json)")
        with pytest.raises(OutboxMissing, match=r"it is at version 4, [0-9]+ is needed.*migrate"):
            refuse_closed(connection, outbox_.schema)
