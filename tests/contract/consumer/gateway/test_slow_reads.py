"""Statuses of others while the database takes long for one id."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from consumer.admin.journal import JournalUnreachable
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.sources import LONG, READ_WITHIN, SharedSource
from feedback.postgres import Connection, open_connection
from feedback.status.status import Status
from stack import Stack
from tests.support.loop_clock import stopped_clock

SLOW = "SELECT pg_sleep(CASE WHEN 'slow' = ANY(%s) THEN 600 ELSE 0 END)"


def test_an_id_for_which_the_database_takes_long_keeps_back_no_other(stack: Stack) -> None:
    """Asked again and again, it takes one connection; others are answered beside it."""
    asked: list[list[str]] = []
    sleeps, answers = threading.Semaphore(0), threading.Semaphore(0)

    def look_up(connection: Connection, ids: Sequence[str]) -> dict[str, Status]:
        asked.append(sorted(ids))
        if "slow" in ids:
            sleeps.release()
        connection.execute(SLOW, [list(ids)])
        answers.release()
        return {}

    threads = DatabaseThreads(
        "database_url", lambda made: open_connection(stack.database, "test", made=made), 2
    )

    async def scenario() -> None:
        later = stopped_clock()
        source = SharedSource(threads, look_up)
        slow = asyncio.create_task(source.read(["slow"]))
        for turn in range(1, 4):
            assert await asyncio.to_thread(sleeps.acquire, timeout=60)
            again = asyncio.create_task(source.read(["slow"]))
            for n in range(5):
                asking = asyncio.create_task(source.read([f"{turn}-{n}"]))
                await asyncio.sleep(0)
                later(LONG + 0.01)  # not until the slow one ends
                assert await asyncio.to_thread(answers.acquire, timeout=60)
                assert await asking == [None]
            assert [ids for ids in asked if "slow" in ids] == [["slow"]] * turn
            later(READ_WITHIN)
            with pytest.raises(JournalUnreachable, match="while it answered others"):
                await slow
            slow = again

    try:
        asyncio.run(scenario())
    finally:
        threads.close()
