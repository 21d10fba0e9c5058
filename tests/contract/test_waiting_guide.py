"""What docs/waiting.md says can be asked of the database, asked of it."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from stack import Stack

GUIDE = Path(__file__).parents[2] / "docs" / "waiting.md"


def test_the_statements_of_the_guide_work(stack: Stack, schema: str) -> None:
    (block,) = re.findall(r"^```sql\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    texts = [text for text in block.replace("oncepool.", f"{schema}.").split(";") if text.strip()]
    assert len(texts) == 4
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO {schema}.requests (id, type, state, code, effect, topic, partition,"
            " kafka_offset, produced_at, not_before, due_at, used, attempt, token, lease_until)"
            " VALUES ('a', 'pay', 'waiting', 'timeout', 'transaction', 't', 0, 0, now(), now(),"
            " now() + interval '1 minute', 2, 3, 'vm-1:7', now() + interval '1 minute')".encode()
        )
        found = [connection.execute(text.encode()).fetchall() for text in texts]
    assert [len(rows) for rows in found] == [1, 1, 1, 1]
    assert found[0][0][:3] == ("pay", "timeout", 1)
    assert found[1][0][:3] == ("vm-1", "pay", 1)
    assert found[3][0][:4] == ("a", "pay", 3, "timeout")
