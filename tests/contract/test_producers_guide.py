"""What docs/producers.md has its reader run, run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from feedback import outbox
from feedback.outbox.migrations import migrate
from stack import Stack

GUIDE = (Path(__file__).parents[2] / "docs" / "producers.md").read_text()


@pytest.fixture
def connection(
    stack: Stack, empty_schema: str, monkeypatch: pytest.MonkeyPatch
) -> psycopg.Connection[tuple[object, ...]]:
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)
    made = psycopg.connect(stack.database, autocommit=True)
    migrate(made, empty_schema, [])
    return made


def test_a_table_and_a_timer_are_left_behind(
    stack: Stack, empty_schema: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    old = f"{empty_schema}.outgoing"
    (block,) = re.findall(r"^   ```python\n(.*?)^   ```", GUIDE, re.MULTILINE | re.DOTALL)
    script = re.sub("^   ", "", block, flags=re.MULTILINE).replace("outgoing", old)
    connection.execute(
        f"CREATE TABLE {old} (id bigint, type text, payload jsonb, sent_at timestamptz)".encode()
    )
    connection.execute(
        f"INSERT INTO {old} SELECT g, 'pay', '{{\"cents\": 5}}', NULL"
        " FROM generate_series(1500, 1, -1) g".encode()
    )
    connection.execute(f"UPDATE {old} SET sent_at = now() WHERE id <= 100".encode())

    exec(script, {"psycopg": psycopg, "outbox": outbox, "url": stack.database})

    [(left,)] = connection.execute(f"SELECT count(*) FROM {old}".encode()).fetchall()
    found = connection.execute(f"SELECT id FROM {empty_schema}.requests ORDER BY seq".encode())
    assert left == 100
    assert [row[0] for row in found] == [f"outbox-{n}" for n in range(101, 1501)]
    connection.close()


def test_answers_leave_the_inbox_with_the_work(
    empty_schema: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    (block,) = re.findall(r"^```sql\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    connection.execute(f"CREATE TABLE {empty_schema}.orders (id bigint, state text)".encode())
    connection.execute(f"INSERT INTO {empty_schema}.orders VALUES (17, 'placed')".encode())
    connection.execute(
        f"INSERT INTO {empty_schema}.inbox (id, type, sender, state)"
        " VALUES ('order-17', 'pay', 'default', 'done')".encode()
    )

    script = block.replace("oncepool_outbox.", f"{empty_schema}.")
    connection.execute(script.replace("orders", f"{empty_schema}.orders").encode())

    found = connection.execute(
        f"SELECT state, (SELECT count(*) FROM {empty_schema}.inbox)"
        f" FROM {empty_schema}.orders".encode()
    )
    assert found.fetchall() == [("paid", 0)]
    connection.close()


def test_a_connection_of_asyncpg_is_handed_over_in_the_pages_class(
    stack: Stack, empty_schema: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    [block] = re.findall(r"^class Given:.*?(?=^async with)", GUIDE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(block, found)

    async def add() -> None:
        made = await asyncpg.connect(stack.database)
        async with made.transaction():
            await outbox.add(found["Given"](made), "t", {}, request_id="kept", sender="default")
        other = made.transaction()
        await other.start()
        await outbox.add(found["Given"](made), "t", {}, request_id="rolled-back")
        await other.rollback()
        await made.close()

    asyncio.run(add())
    ids = connection.execute(f"SELECT id FROM {empty_schema}.requests".encode()).fetchall()
    assert ids == [("kept",)]
    connection.close()
