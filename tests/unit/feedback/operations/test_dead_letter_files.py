from __future__ import annotations

import orjson
import pytest
from pydantic import ValidationError

from feedback.operations.dead_letter_files import RequestLine, identity

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


@pytest.mark.parametrize("column", ["produced_at", "created_at", "finished_at"])
@pytest.mark.parametrize(
    "time", ["9999-12-31T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"]
)
def test_a_time_that_python_may_not_read_again_is_refused(column: str, time: str) -> None:
    assert identity(orjson.dumps({**REQUEST, column: "9999-12-30T00:00:00Z"})) is not None
    assert identity(orjson.dumps({**REQUEST, column: time})) is None
    with pytest.raises(ValidationError) as raised:
        RequestLine.model_validate_json(orjson.dumps({**REQUEST, column: time}))
    assert "between 1970-01-01 and 9999-12-30" in str(raised.value)
