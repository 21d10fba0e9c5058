from __future__ import annotations

import orjson
import pytest

from feedback.operations.dead_letter_files import identity

AT = "2026-05-01T12:00:00Z"
REQUEST = {
    "kind": "request", "id": "a", "type": "pay", "code": "handler_error", "topic": "t",
    "partition": 0, "kafka_offset": 7, "produced_at": AT, "effect": "transaction",
    "created_at": AT, "finished_at": AT,
}  # fmt: skip


@pytest.mark.parametrize("column", ["run", "crashes", "resends", "attempt", "used"])
def test_a_number_that_cannot_be_counted_on_is_no_dead_letter(column: str) -> None:
    """The next start would be beyond its column, and fail the claim of every row with it."""
    assert identity(orjson.dumps({**REQUEST, column: 99_999})) is not None
    assert identity(orjson.dumps({**REQUEST, column: 2**31 - 1})) is None
