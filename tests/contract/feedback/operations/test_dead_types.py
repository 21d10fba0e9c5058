"""The type of a message that is dead, where its headers say several, on real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from feedback.operations.dead_letters import list_dead, select_dead
from tests.support.journal import Journal

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("found_by", [{"type": "b"}, {"types": ["b"]}])
def test_a_message_has_the_type_that_is_shown(journal: Journal, found_by: dict[str, Any]) -> None:
    headers = orjson.dumps([["ce_type", ""], ["ce_type", "YQ=="], ["ce_type", "Yg=="]]).decode()
    row = {"topic": "t", "partition": 0, "kafka_offset": 1, "produced_at": AT, "detail": "twice"}
    journal.insert("dead_letters", **row, reason="malformed", headers=headers)

    [shown] = list_dead(journal.connection, {"type": "a"}, 9, schema=journal.schema)
    assert shown["type"] == "a"
    assert list_dead(journal.connection, found_by, 9, schema=journal.schema) == []
    assert select_dead(journal.connection, found_by, schema=journal.schema) == []
