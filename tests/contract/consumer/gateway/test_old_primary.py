"""What is only read comes from the server that takes writes now."""

from __future__ import annotations

import asyncio

import pytest

from consumer.admin.journal import JournalReadOnly
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.database_jobs import SURE_FOR, refuse_read_only
from feedback.postgres import Connection, open_connection
from tests.support.own_database import OwnDatabase


def _backend(connection: Connection) -> int:
    return connection.info.backend_pid


def test_a_read_only_server_is_read_from_for_some_seconds_at_most(
    own_database: OwnDatabase,
) -> None:
    now = [0.0]
    threads = DatabaseThreads(
        "database_url",
        lambda made: open_connection(own_database.url, "test", made=made),
        1,
        lambda: now[0],
    )

    async def read() -> int:
        return await threads.run(_backend, 60, again=True)

    async def scenario() -> None:
        own_database.set("default_transaction_read_only", "on")
        old = await read()
        own_database.set("default_transaction_read_only", "off")
        now[0] += SURE_FOR - 1
        assert await read() == old
        now[0] += 1
        new = await read()
        assert new != old
        now[0] += SURE_FOR
        assert await read() == new  # that one takes writes: it stays

    try:
        asyncio.run(scenario())
    finally:
        threads.close()


def test_whoever_asks_for_writes_is_told_by_a_new_connection(own_database: OwnDatabase) -> None:
    threads = DatabaseThreads(
        "database_url", lambda made: open_connection(own_database.url, "test", made=made), 1
    )

    async def probe() -> None:
        await threads.run(refuse_read_only, 60, again=True)

    async def scenario() -> None:
        own_database.set("default_transaction_read_only", "on")
        await threads.run(_backend, 60, again=True)
        with pytest.raises(JournalReadOnly, match="name the primary in database_url"):
            await probe()
        await threads.run(_backend, 60, again=True)
        own_database.set("default_transaction_read_only", "off")
        await probe()

    try:
        asyncio.run(scenario())
    finally:
        threads.close()
